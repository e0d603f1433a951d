"""Runs on a Ray cluster: a supervisor on each of its nodes, started by that node's agent; Ray itself is only in the bridge."""
