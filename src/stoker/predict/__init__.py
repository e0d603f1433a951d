"""Predict with what came out of training: bundles, formats, batch and online."""
