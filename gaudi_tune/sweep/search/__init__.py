"""The search: Optuna behind Tune's interface, with every trial in view."""
