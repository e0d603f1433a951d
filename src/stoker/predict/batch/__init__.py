"""Batch prediction: plan, read, predict, write."""
