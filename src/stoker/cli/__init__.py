"""The command line: one file a noun; prints, never decides."""
