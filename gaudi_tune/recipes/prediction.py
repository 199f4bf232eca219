"""Predicts the class of raw input with a trained classifier on the CPU. It needs neither Ray nor habana."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import torch

PACKAGES = ("filelock", "numpy", "pandas", "pydantic", "torch")
"""Packages that must be installed to load any model of this project."""


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

        from gaudi_tune.recipes.training_config import EVAL_BATCH

        name = table.columns[0]
        if name not in (self.column, 0):  # MLflow turns a list into column 0, and leaves out all columns but the first
            raise ValueError(f"the (first) column must be {self.column!r}, but it is {name!r}")
        inputs = table[name].tolist()
        predictions: list[str] = []
        probabilities: list[float] = []
        with torch.inference_mode():
            for start in range(0, len(inputs), EVAL_BATCH):
                logits = self.logits(inputs[start : start + EVAL_BATCH])
                best = logits.softmax(dim=1).max(dim=1)
                predictions += [self.classes[index] for index in best.indices.tolist()]
                probabilities += best.values.tolist()
        return pd.DataFrame({"prediction": predictions, "probability": probabilities}, index=table.index)
