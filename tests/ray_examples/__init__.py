"""Runs Ray Tune's public examples; ``python -m tests.ray_examples --help`` says how."""
