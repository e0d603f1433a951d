"""Runs on a Ray cluster: a supervisor on each of their nodes, started by its agent; Ray itself is only in the bridge."""
