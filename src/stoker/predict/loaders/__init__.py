"""One module for each framework: how its files become a predictor."""
