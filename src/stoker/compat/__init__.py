"""The old names: code written for other platforms runs as it is."""
