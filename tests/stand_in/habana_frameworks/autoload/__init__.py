"""What torch calls in each process that imports it (an entry point in ``habana_stand_in-1.dist-info``), unless
``TORCH_DEVICE_BACKEND_AUTOLOAD=0``."""

import os

is_loaded = False
"""Whether the bridge is being imported, or has been."""


def __autoload() -> None:
    """Import the bridge, but not in lazy mode, unless ``PT_HPU_AUTOLOAD`` says whether."""
    lazy = os.environ.get("PT_HPU_LAZY_MODE") == "1"
    if not is_loaded and os.environ.get("PT_HPU_AUTOLOAD", "0" if lazy else "1") == "1":
        import habana_frameworks.torch  # noqa: F401
