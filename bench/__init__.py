"""Measured side by side with peers, as ratios in one run. `make bench` runs the spine; each file can be run alone."""
