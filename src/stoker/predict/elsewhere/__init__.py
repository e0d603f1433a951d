"""Models that need another Python or other libraries than this process has."""
