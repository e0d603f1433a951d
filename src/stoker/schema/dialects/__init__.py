"""Readers of other systems' job files, each into our JobSpec."""
