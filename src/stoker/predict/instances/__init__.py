"""Instances and predictions: parsing, checking and the formats they travel in."""
