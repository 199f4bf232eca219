"""What predicts from raw input with a trained model on the CPU, as the MLflow model of a checkpoint does.

Neither this module nor those of the models need Ray or habana, so that MLflow can load a model without them.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pandas as pd

LOADED_BY = "loaded_by"
"""The entry of an MLflow model's configuration with the function that makes the predictor:
``package.module:function``."""


class Predictor(Protocol):
    """A trained model that predicts from raw input. An experiment names a function that loads one from a checkpoint."""

    @property
    def packages(self) -> Sequence[str]:
        """Packages that must be installed to load it, by their names in pip; MLflow adds the versions."""

    @property
    def example(self) -> pd.DataFrame:
        """A row of input."""

    def predict(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return a row for each row of ``table``."""


def _load_pyfunc(data: str, config: Mapping[str, str]) -> Predictor:
    """Load a model's files. MLflow calls the function of this name in the module that the model names as its loader."""
    load: Callable[[Path], Predictor] = pkgutil.resolve_name(config[LOADED_BY])
    return load(Path(data))
