"""Commands of det."""
