"""Callbacks for other trainers: metrics to the run, checkpoints to go on from, and stops obeyed. One module each."""
