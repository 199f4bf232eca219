"""The error for wrong input."""


class SweepError(ValueError):
    """Something that was asked for cannot be done; says the rule, the value and the mend. No device was touched."""
