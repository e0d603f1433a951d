"""`determined.experimental`."""
