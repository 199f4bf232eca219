"""Predicts from raw input with a trained model on the CPU, as the MLflow model of a checkpoint does.

Neither this module nor those of the models need Ray or habana, so that MLflow can load a model without them.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pandas as pd
    import torch

PACKAGES = ("filelock", "numpy", "pandas", "pydantic", "torch")
"""Packages that must be installed to load any model of this project."""
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


@dataclass(frozen=True, kw_only=True)
class ClassPredictor:
    """A trained classifier that predicts the class of each input and its probability."""

    column: str
    """Name of the input's column."""
    sample: str | bytes
    """An example of an input."""
    packages: Sequence[str]
    """Packages that must be installed to load it, by their names in pip."""
    classes: Sequence[str]
    """Names of the classes, in the order of the logits."""
    logits: Callable[[list[Any]], torch.Tensor]
    """Returns logits of shape (n, classes) for n inputs."""

    @property
    def example(self) -> pd.DataFrame:
        """A row of input."""
        import pandas as pd

        return pd.DataFrame({self.column: [self.sample]})

    def predict(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return a row with ``prediction`` (the name of the class) and ``probability`` for each row of ``table``.

        Raises:
            ValueError: The table's first column has another name.
        """
        import pandas as pd
        import torch

        from gaudi_tune.training.loading import EVAL_BATCH_PER_WORKER

        name = table.columns[0]
        if name not in (self.column, 0):  # MLflow turns a list into column 0, and leaves out all columns but the first
            raise ValueError(f"the (first) column must be {self.column!r}, but it is {name!r}")
        inputs = table[name].tolist()
        predictions: list[str] = []
        probabilities: list[float] = []
        with torch.inference_mode():
            for start in range(0, len(inputs), EVAL_BATCH_PER_WORKER):
                logits = self.logits(inputs[start : start + EVAL_BATCH_PER_WORKER])
                best = logits.softmax(dim=1).max(dim=1)
                predictions += [self.classes[index] for index in best.indices.tolist()]
                probabilities += best.values.tolist()
        return pd.DataFrame({"prediction": predictions, "probability": probabilities}, index=table.index)


def _load_pyfunc(data: str, config: Mapping[str, str]) -> Predictor:
    """Load a model's files. MLflow calls the function of this name in the module that the model names as its loader."""
    load: Callable[[Path], Predictor] = pkgutil.resolve_name(config[LOADED_BY])
    return load(Path(data))
