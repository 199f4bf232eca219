"""What a sweep's plan says of labelled data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainables.data.configs import ImageConfig, TextConfig
from trainables.runtime.training.training_config import check_batch, check_classes

NAMED = 8
"""Classes that are named."""


def check_data(config: TextConfig | ImageConfig, what: str, sizes: Mapping[str, int], classes: Sequence[str]) -> str:
    """See that the data is enough for a configuration, and return what it holds, in a line.

    Args:
        config: What is to be trained.
        what: "texts" or "images".
        sizes: How many there are in ``train`` and ``val``, and in ``test`` if it is held out.
        classes: Their names.

    Raises:
        ValueError: A batch needs more, or a metric more classes.
    """
    check_batch(config, workers=1, samples=sizes["train"])
    check_classes(config, len(classes))
    test = f"{sizes['test']} to test, " if "test" in sizes else ""
    named = ", ".join(classes[:NAMED]) + (", …" if len(classes) > NAMED else "")
    return (
        f"data: {config.data}: {sizes['train']} {what} to train on, {sizes['val']} to validate, {test}"
        f"{len(classes)} classes ({named})"
    )
