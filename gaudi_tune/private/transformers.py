"""transformers, where evaluate imports more of it than is used."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import cast

PIPELINES = "transformers.pipelines"


def import_evaluate() -> ModuleType:
    """Import evaluate without its evaluators, for which it would import all of transformers' pipelines.

    They take 5 s of CPU and 170 MB in every worker (evaluate 0.4.6, transformers 5.23), nothing here uses them, and
    evaluate has no setting to leave them out.
    """
    if PIPELINES in sys.modules:
        return importlib.import_module("evaluate")
    sys.modules[PIPELINES] = cast(ModuleType, None)  # Python's way to make an import fail; evaluate expects that it may
    try:
        return importlib.import_module("evaluate")
    finally:
        del sys.modules[PIPELINES]
