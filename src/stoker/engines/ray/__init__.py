"""Runs on a Ray cluster: supervisors on its nodes, started by the agent there; Ray itself is in the bridge alone."""
