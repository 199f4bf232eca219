"""The search: Optuna behind Tune's interface, told of every trial."""
