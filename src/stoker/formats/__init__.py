"""Byte formats that several rooms read and write."""
