"""Runs Ray Tune's public examples; ``python -m tests.tools.ray_examples --help`` says how."""
