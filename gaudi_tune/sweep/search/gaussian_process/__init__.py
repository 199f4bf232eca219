"""Search with a Gaussian process: the default."""
