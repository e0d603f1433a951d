"""One module for each form in which instances come."""
