"""A Python that satisfies a package: runtimes, and the layers of packages on top of them."""
