"""cloudpickle, which reads a class only once in a process."""

from __future__ import annotations

import sys

from gaudi_tune.private.surfaces import part


@part("new-classes", lambda: None)
def forget_classes() -> None:
    """Have cloudpickle make new classes from now on. No public API does this.

    Otherwise it returns a class that it has made before from the same bytes, with all that its attributes hold by now.
    """
    for name in ("ray.cloudpickle.cloudpickle", "cloudpickle.cloudpickle"):
        if name in sys.modules:
            sys.modules[name]._DYNAMIC_CLASS_TRACKER_BY_CLASS.clear()
            sys.modules[name]._DYNAMIC_CLASS_TRACKER_BY_ID.clear()
