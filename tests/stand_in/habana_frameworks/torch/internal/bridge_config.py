"""The bridge's switches: get_pt_hpu_lazy_mode() and set_pt_hpu_lazy_mode() for PT_HPU_LAZY_MODE, and so on."""

import os
from collections.abc import Callable
from typing import Any


def __getattr__(name: str) -> Callable[..., Any]:
    what, _, variable = name.partition("_")
    if what not in ("get", "set") or not variable.startswith("pt_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def get() -> int:
        said = os.environ.get(variable.upper(), "0").lower()
        return int({"true": "1", "false": "0"}.get(said, said))

    def set_to(value: Any) -> None:
        os.environ[variable.upper()] = str(int(value))

    return get if what == "get" else set_to
