"""Habana's own kernels."""
