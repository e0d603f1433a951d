"""What runs next, and where."""
