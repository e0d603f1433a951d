"""A directory of code as a package: which files ship, what they declare, and the archive."""
