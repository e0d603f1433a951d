"""Look at a directory of training code: which platform it was written for, what of it runs here, what does not."""
