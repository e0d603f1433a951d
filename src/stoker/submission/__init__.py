"""From a directory of code to a job: scan, environment, pack, upload."""
