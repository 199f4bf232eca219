"""A sweep in a notebook, in a real browser; ``python -m tests.notebook --help`` says how."""
