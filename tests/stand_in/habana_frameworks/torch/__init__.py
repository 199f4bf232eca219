"""Importing it makes "hpu" a device, as with the real one; it acquires none."""

import os

# The real bridge's own check: a process of several must be able to tell which module is its own.
if int(os.environ.get("WORLD_SIZE", "1")) > 1 and "HLS_MODULE_ID" not in os.environ:
    visible = os.environ.get("HABANA_VISIBLE_MODULES", "0,1,2,3,4,5,6,7").split(",")
    assert int(os.environ.get("LOCAL_RANK", "0")) < len(visible), (
        f"There is not enough devices. Local rank {os.environ.get('LOCAL_RANK')}, visible modules {visible}"
    )

from habana_frameworks import autoload

autoload.is_loaded = True  # before torch is imported, which would import this again

from habana_frameworks.torch import _tensors, hpu  # noqa: E402

_tensors.install(hpu)
