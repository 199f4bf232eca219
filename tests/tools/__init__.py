"""Tools that are run by name, as in ``python -m tests.tools.faults``; ``--help`` says what each does."""
