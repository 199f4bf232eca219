"""The mode, as the bridge's own parts ask for it."""

import os


def is_lazy() -> bool:
    """Whether this process collects operations into graphs; up to 1.19 that was the default, here it is not."""
    return os.environ.get("PT_HPU_LAZY_MODE", "0") != "0"
