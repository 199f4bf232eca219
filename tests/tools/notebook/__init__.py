"""A sweep in a notebook, in a real browser; ``python -m tests.tools.notebook --help`` says how."""
