"""The Python and the libraries that legacy code was written for."""
