"""Follow the files that user code writes."""
