"""Runs on a Ray cluster: a supervisor on each node, started by a detached actor; Ray itself is only in the bridge."""
