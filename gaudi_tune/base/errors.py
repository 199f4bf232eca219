"""The error for wrong input."""


class SweepError(ValueError):
    """A sweep cannot do what the user asked for. The text names the rule, the value and the fix."""
