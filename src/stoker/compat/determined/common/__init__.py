"""`determined.common`."""
