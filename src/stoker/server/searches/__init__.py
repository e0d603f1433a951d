"""Hyperparameter searches on the server: advance, record, report."""
