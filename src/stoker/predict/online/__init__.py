"""A model behind HTTP: one process that listens and watches, and workers that predict."""
