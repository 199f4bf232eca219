"""Everything this project uses of Ray, Optuna, MLflow, torch and others that they do not document for users.

The rule: what is private or undocumented in a library is used here alone, one module per library and purpose.
Each name says why the public API is not enough, and has a contract test in ``tests/private/`` that fails on the day the
library changes it: an upgrade begins with those tests. A module here imports its library and nothing of this project
outside, of which it knows only the names of its variables (``GAUDI_TUNE_...``), so every other folder may import it.
:mod:`.surfaces` lists what each purpose needs, and what a sweep does where an installed version lacks it. Ruff's
private-access rule is on everywhere else.
"""
