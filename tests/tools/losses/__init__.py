"""Sweeps without each of the private surfaces."""
