"""The machinery of a sweep; what users need of it is re-exported by :mod:`experiments`."""
