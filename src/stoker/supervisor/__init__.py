"""The process around the user's code on one node of a run."""
