"""Prediction from raw input with a trained model, on the CPU: what an MLflow model of a checkpoint does.

Neither this nor the models' modules need Ray or habana: MLflow loads a model where neither is installed.
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
"""What every model of this package needs to be loaded."""
LOADED_BY = "loaded_by"
"""In an MLflow model's configuration: the function that makes the predictor, as ``package.module:function``."""


class Predictor(Protocol):
    """A trained model that predicts from raw input. An experiment names a function that loads one from a checkpoint."""

    @property
    def packages(self) -> Sequence[str]:
        """What must be installed to load it, by the names that pip knows; MLflow notes the versions."""

    @property
    def example(self) -> pd.DataFrame:
        """A row of input."""

    def predict(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return a row for each row of ``table``."""


@dataclass(frozen=True, kw_only=True)
class ClassPredictor:
    """A trained classifier that says the class of each input, and how probable it is."""

    column: str
    """Name of the column of input."""
    sample: str | bytes
    """An input."""
    packages: Sequence[str]
    """What must be installed to load it, by the names that pip knows."""
    classes: Sequence[str]
    """Names, in the order of the logits."""
    logits: Callable[[list[Any]], torch.Tensor]
    """Returns logits of shape (n, classes) of n inputs."""

    @property
    def example(self) -> pd.DataFrame:
        """A row of input."""
        import pandas as pd

        return pd.DataFrame({self.column: [self.sample]})

    def predict(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the columns ``prediction`` (the name of the class) and ``probability``, a row for each of ``table``.

        Raises:
            ValueError: The table's first column has another name.
        """
        import pandas as pd
        import torch

        from gaudi_tune.training.loading import EVAL_BATCH_PER_WORKER

        name = table.columns[0]
        if name not in (self.column, 0):  # MLflow makes a column 0 of a list, and leaves all but the first column out
            raise ValueError(f"the (first) column must be {self.column!r}, but it is {name!r}")
        inputs = table[name].tolist()
        batches = [inputs[at : at + EVAL_BATCH_PER_WORKER] for at in range(0, len(inputs), EVAL_BATCH_PER_WORKER)]
        with torch.inference_mode():
            best = [self.logits(batch).softmax(dim=1).max(dim=1) for batch in batches]
        columns = {
            "prediction": [self.classes[index] for of_batch in best for index in of_batch.indices.tolist()],
            "probability": [value for of_batch in best for value in of_batch.values.tolist()],
        }
        return pd.DataFrame(columns, index=table.index)


def _load_pyfunc(data: str, config: Mapping[str, str]) -> Predictor:
    """Load a model's files; MLflow calls a function of this name in the module that a model names as its loader."""
    load: Callable[[Path], Predictor] = pkgutil.resolve_name(config[LOADED_BY])
    return load(Path(data))
