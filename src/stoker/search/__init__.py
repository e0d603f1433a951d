"""Which trial is next, and which should stop: searches, decided without I/O."""
