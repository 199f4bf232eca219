"""A fuzzer: inputs that are nearly right, for everything that a user can give to a sweep."""
