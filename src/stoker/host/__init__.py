"""This machine: the home directory, atomic files, locks, and processes."""
