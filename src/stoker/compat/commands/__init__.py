"""The commands of AI Platform and Determined, for the scripts and habits people bring."""
