"""Splits data that has no validation or test part. A search never sees its test data."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypeVar
from unicodedata import normalize

import numpy as np

from gaudi_tune.base.words import shown


class HasText(Protocol):
    """A row of data."""

    @property
    def text(self) -> str:
        """What a model reads of it."""


Row = TypeVar("Row", bound=HasText)
Split: TypeAlias = Literal["train", "val", "test"]
"""A part of the data."""
VALIDATION_PARTS = ("validation", "test")
"""Names of the part for validation; the first that the data has counts."""
VALIDATION_SHARE = 0.2
"""Share of all rows that becomes validation data, if the data has no part for that."""


def split_off(labels: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the rows to train on, and those that become validation data: a random share of each class, and none of
    rare classes. Both are in order, and the same for the same labels.

    Args:
        labels: The class of each row, shape (n,).
    """
    order = np.random.default_rng(0).permutation(len(labels))
    _, counts = np.unique(labels, return_counts=True)
    by_class = np.split(order[np.argsort(labels[order], kind="stable")], counts.cumsum()[:-1])
    to_validate = np.sort(np.concatenate([rows[: round(VALIDATION_SHARE * len(rows))] for rows in by_class]))
    return np.setdiff1d(np.arange(len(labels)), to_validate), to_validate


def rows_of(part: Literal["val", "test"], labels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the rows of the validation data that belong to a part: every second row of each class, in order.

    Args:
        part: The part. If the number of rows is odd, the test part is the smaller one.
        labels: The class of each row, shape (n,).

    Raises:
        ValueError: There are too few rows for two parts.
    """
    if len(labels) < 2:
        raise ValueError(
            f"the confirmation needs half of the validation data, and there are too few samples: {len(labels)}; "
            f"give more, or a separate test part, or --confirm 0"
        )
    by_class = np.argsort(labels, kind="stable")
    return np.sort(by_class[0::2] if part == "val" else by_class[1::2])


def divided(
    parts: Mapping[str, Sequence[Row]], kind: str, *, hold_out: bool, class_of: Callable[[Row], object] | None = None
) -> tuple[dict[Split, Sequence[Row]], list[str]]:
    """Return training and validation data, and test data if it is held out; and remarks on what was divided.

    Args:
        parts: The rows of the parts of :data:`VALIDATION_PARTS` and of ``train`` that the data has.
        kind: What a row is, for the remarks: "texts".
        hold_out: Whether to hold out test data: the test part, or if that is none or validates, half of the validation
            data.
        class_of: Returns the class of a row, if it has one. The parts of the result have a like share of each.

    Raises:
        ValueError: There is nothing to train or to validate on.
    """
    if not parts.get("train"):
        raise ValueError("there is nothing to train on; give a split or file 'train' with rows")
    notes: list[str] = []
    has_classes, share = class_of is not None, " of each class" if class_of else ""
    class_of = class_of or (lambda row: 0)
    validation = next((name for name in VALIDATION_PARTS if name in parts), None)
    train, val = parts["train"], parts[validation] if validation is not None else ()
    if validation is None:
        rows = split_off(np.array([class_of(row) for row in train]))
        train, val = ([train[row] for row in part] for part in rows)
        notes.append(f"there is no validation part: a fifth of the {kind}{share} serves for it")
    elif validation == "test":
        notes.append("there is no validation part: the test part serves for it")
    if not val:
        raise ValueError("there is nothing to validate on; give more rows, or a split or file 'validation' with some")
    splits: dict[Split, Sequence[Row]] = {"train": train, "val": val}
    if hold_out and validation == "validation" and parts.get("test"):
        splits["test"] = parts["test"]
    elif hold_out:
        classes = np.unique([class_of(row) for row in val], return_inverse=True)[1]
        splits["val"] = [val[row] for row in rows_of("val", classes)]
        splits["test"] = [val[row] for row in rows_of("test", classes)]
        notes.append(f"half of the validation {kind} are held out for the confirmation")
    different = {split: [compared(row.text) for row in rows] for split, rows in splits.items()}
    notes += shared_samples(different, kind)
    if has_classes:
        notes += several_classes(
            different, {split: [str(class_of(row)) for row in splits[split]] for split in splits}, kind
        )
    return splits, notes


def compared(text: str) -> str:
    """Return a text without what copies of it often differ in: white space, case, and how accents are written.

    >>> compared("A  good\\tfilm\\n")
    'a good film'
    """
    return " ".join(normalize("NFC", text).casefold().split())


def shared_samples(splits: Mapping[Any, Sequence[Hashable]], kind: str) -> Iterator[str]:
    """Yield a remark on each split that has samples of another, which its scores should not depend on."""
    different_samples = {split: {*samples} for split, samples in splits.items()}
    for split, other in (("val", "train"), ("test", "train"), ("test", "val")):
        if common := sum(sample in different_samples.get(other, ()) for sample in splits.get(split, ())):
            yield f"{common} of {len(splits[split])} {kind} of {split} are the same as {kind} of {other}"


def similar_classes(labels: Sequence[str]) -> Iterator[str]:
    """Yield a remark if names of classes differ only in what :func:`compared` leaves out, or as 01 and 1.0 do.

    >>> [*similar_classes(["1", "01", "2"])]
    ["classes that may be the same, and are written differently: '1', '01'"]
    """
    spellings = {label: re.sub(r"^0+(?=[0-9])|\.0+$", "", compared(label)) for label in labels}
    counts = Counter(spellings.values())
    if alike := [repr(label) for label in labels if counts[spellings[label]] > 1]:
        yield f"classes that may be the same, and are written differently: {', '.join(alike)}"


def several_classes(
    samples: Mapping[Any, Sequence[Hashable]], labels: Mapping[Any, Sequence[str]], kind: str
) -> Iterator[str]:
    """Yield a remark if equal samples, in whichever splits, are of several classes.

    >>> [*several_classes({"train": "ab", "val": "a"}, {"train": ["cat", "dog"], "val": ["dog"]}, "images")]
    ['equal images are of several classes: 1, the first of cat and dog']
    """
    classes: dict[Hashable, dict[str, None]] = defaultdict(dict)
    for split in samples:
        for sample, label in zip(samples[split], labels[split], strict=True):
            classes[sample][label] = None
    if conflicts := [found for found in classes.values() if len(found) > 1]:
        words = " and ".join(map(shown, conflicts[0]))
        yield f"equal {kind} are of several classes: {len(conflicts)}, the first of {words}"
