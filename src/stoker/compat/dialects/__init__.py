"""Config files of AI Platform and Determined."""
