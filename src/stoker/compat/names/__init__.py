"""A folder for sys.path: what is in it is imported by the names that old code uses."""
