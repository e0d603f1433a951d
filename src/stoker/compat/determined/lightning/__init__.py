"""`determined.lightning`."""
