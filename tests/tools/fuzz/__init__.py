"""A fuzzer: inputs that are nearly right, at every door through which a user gives something to a sweep."""
