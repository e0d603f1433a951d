"""Ready trainers for tables and text, written only on the public `stoker.pytorch`."""
