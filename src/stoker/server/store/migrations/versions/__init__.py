"""One step a file. A step never changes once released: it says what it makes in its own words."""
