"""Start runs from processes that have already imported what they need."""
