"""From a directory of code to a package, and to a Python that can run it."""
