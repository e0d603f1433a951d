"""`python3 -m determined.launch.…`: in front of a script. Stoker starts the ranks, so most have little to do."""
