"""Labelled text: loaded from files or the hub, tokenized once per node, shared by its workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import Dataset

from trainables.runtime.loading import Batch
from trainables.runtime.node_cache import fingerprint, prepare_once
from trainables.runtime.training_config import TrainingConfig

if TYPE_CHECKING:
    from datasets import DatasetDict
    from transformers import PreTrainedTokenizerBase

VALIDATION_SPLITS = ("validation", "test")
"""Split names taken for validation, the first that the data has."""
TOKENIZED_FORMAT = 2
"""Raised when the tokenized arrays of the same text change."""


@dataclass(frozen=True, kw_only=True)
class TextConfig(TrainingConfig):
    """Settings of text classification data."""

    data: str = "yelp_review_full"
    """A name on the hub, a folder with ``train.*`` and ``test.*`` or ``validation.*`` files, or one file."""
    model: str = "bert-base-cased"
    """A name on the hub, or a local folder, of an encoder and its tokenizer."""
    text_column: str = "text"
    """Column of the text."""
    label_column: str = "label"
    """Column of the class: whole numbers, strings or a ClassLabel."""
    max_length: int = 512
    """Tokens per text; shorter ones are padded to it, longer ones are cut. One length means one graph."""

    def rules(self) -> dict[str, bool]:
        """Return each rule in words, and whether it is kept."""
        return super().rules() | {"max_length must be at least 8": self.max_length >= 8}


class TokenizedTexts(Dataset[Any]):
    """Token ids of all texts of a split: memory-mapped, so that the workers of a node share one copy."""

    augments = False

    def __init__(self, folder: Path, split: str) -> None:
        self.input_ids = np.load(folder / f"{split}_input_ids.npy", mmap_mode="r")
        self.lengths = np.load(folder / f"{split}_lengths.npy")
        self.labels = np.load(folder / f"{split}_labels.npy")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitems__(self, indices: list[int]) -> Batch:
        """Return ``input_ids`` and ``attention_mask`` of shape (n, max_length) and ``labels`` of shape (n,)."""
        mask = np.arange(self.input_ids.shape[1])[None, :] < self.lengths[indices, None]
        return {
            "input_ids": torch.from_numpy(self.input_ids[indices].astype(np.int64)),
            "attention_mask": torch.from_numpy(mask.astype(np.int64)),
            "labels": torch.from_numpy(self.labels[indices]),
        }


@dataclass(frozen=True)
class TokenizedData:
    """What tokenizing left in a folder of the node's cache."""

    train: TokenizedTexts
    val: TokenizedTexts
    labels: list[str]
    tokenizer: Path


def tokenized(config: TextConfig) -> TokenizedData:
    """Return the tokenized data of ``config``, made on this node if nobody has yet.

    Raises:
        ValueError: The data or the tokenizer cannot be used; says which, why, and what to give instead.
    """
    names = ("text_column", "label_column", "max_length", "train_samples", "val_samples")
    key = {name: getattr(config, name) for name in names}
    key |= {"format": TOKENIZED_FORMAT, "data": fingerprint(config.data), "model": fingerprint(config.model)}
    folder = prepare_once("tokenized", key, lambda into: _tokenize(config, into))
    return _open_tokenized(folder)


@cache
def _open_tokenized(folder: Path) -> TokenizedData:
    labels = json.loads((folder / "labels.json").read_text())
    return TokenizedData(TokenizedTexts(folder, "train"), TokenizedTexts(folder, "val"), labels, folder / "tokenizer")


def _tokenize(config: TextConfig, folder: Path) -> None:
    splits, labels = _load_texts(config)
    tokenizer = _tokenizer(config.model)
    tokenizer.padding_side = "right"  # the attention mask is kept as a length
    tokenizer.model_max_length = config.max_length  # kept with the tokenizer, for those who load it to predict
    for split, limit in (("train", config.train_samples), ("val", config.val_samples)):
        rows = splits[split].select(range(min(limit or len(splits[split]), len(splits[split]))))
        encoded = encode(tokenizer, list(map(str, rows[config.text_column])))
        np.save(folder / f"{split}_input_ids.npy", encoded["input_ids"].astype(np.int32))
        np.save(folder / f"{split}_lengths.npy", encoded["attention_mask"].sum(axis=1))
        classes = [labels.index(str(label)) for label in _label_names(rows, config.label_column)]
        np.save(folder / f"{split}_labels.npy", np.asarray(classes, dtype=np.int64))
    (folder / "labels.json").write_text(json.dumps(labels))
    tokenizer.save_pretrained(folder / "tokenizer")


def encode(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Return ``input_ids`` and ``attention_mask`` of shape (n, max_length), as training, validation and prediction do.

    ``max_length`` is the tokenizer's own, which is that of :class:`TextConfig`.
    """
    encoded = tokenizer(texts, padding="max_length", truncation=True, return_tensors="np")
    return {name: encoded[name] for name in ("input_ids", "attention_mask")}


def _load_texts(config: TextConfig) -> tuple[Mapping[str, Any], list[str]]:
    """Return the splits ``train`` and ``val``, and the names of the classes."""
    loaded = _load_dataset(config.data)
    columns = next(iter(loaded.values())).column_names
    for option, column in (("text_column", config.text_column), ("label_column", config.label_column)):
        if column not in columns:
            raise ValueError(
                f"--data {config.data}: there is no column {column!r}; the columns are {', '.join(columns)}. "
                f"Name the right one with --set {option}=NAME."
            )
    if "train" not in loaded or not len(loaded["train"]):
        raise ValueError(f"--data {config.data}: there is nothing to train on; give a split or file 'train' with rows")
    val = next((loaded[name] for name in VALIDATION_SPLITS if name in loaded), None)
    if val is None:
        parts = loaded["train"].train_test_split(test_size=0.2, seed=0)
        splits = {"train": parts["train"], "val": parts["test"]}
    else:
        splits = {"train": loaded["train"], "val": val}
    if not len(splits["val"]):
        raise ValueError(f"--data {config.data}: there is nothing to validate on; the validation split has no rows")
    labels = sorted({str(name) for name in _label_names(splits["train"], config.label_column)})
    if "None" in labels:
        raise ValueError(
            f"--data {config.data}: some rows have no {config.label_column}; fill them in or leave them out"
        )
    unseen = {str(name) for name in _label_names(splits["val"], config.label_column)} - set(labels)
    if unseen:
        raise ValueError(f"--data {config.data}: classes {sorted(unseen)} are in the validation split and not in train")
    return splits, labels


def _label_names(rows: Any, column: str) -> list[Any]:
    feature = rows.features[column]
    values = rows[column]
    return [feature.int2str(value) for value in values] if hasattr(feature, "int2str") else list(values)


def _load_dataset(data: str) -> DatasetDict:
    from datasets import DatasetDict, disable_progress_bars, load_dataset

    path = Path(data)
    if path.is_dir() and not any(p.is_file() for p in path.rglob("*")):
        raise ValueError(f"--data {data}: the folder is empty; give one with train.* and test.* (csv, jsonl, parquet)")
    if path.is_file() and not path.stat().st_size:
        raise ValueError(f"--data {data}: the file is empty")
    disable_progress_bars()
    try:
        if path.is_file():
            builder = {".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}.get(path.suffix)
            if builder is None:
                raise ValueError(f"files of kind {path.suffix!r} are not read; give .csv, .json, .jsonl or .parquet")
            loaded = load_dataset(builder, data_files={"train": str(path)})
        else:
            loaded = load_dataset(data)
    except Exception as error:
        # What the datasets library raises here ranges over every builder and every network layer.
        where = "it is there, but cannot be read" if path.exists() else "no such file or folder, and not on the hub"
        raise ValueError(
            f"--data {data}: {where} ({first_line(error)}). Give a local path or a name on the hub."
        ) from error
    assert isinstance(loaded, DatasetDict)
    return loaded


def _tokenizer(model: str) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    tokenizer: PreTrainedTokenizerBase = from_pretrained(AutoTokenizer.from_pretrained, model)
    return tokenizer


def from_pretrained(load: Callable[[str], Any], model: str) -> Any:
    """Return ``load(model)``.

    Raises:
        ValueError: There is no such model.
    """
    try:
        return load(model)
    except Exception as error:
        where = "the folder does not hold a model" if Path(model).exists() else "no such folder, and not on the hub"
        raise ValueError(
            f"--model {model}: {where} ({first_line(error)}). Give a folder written by save_pretrained (config.json, "
            f"weights, tokenizer) or a name on the hub."
        ) from error


def first_line(error: BaseException) -> str:
    """Return an error of another library in one line."""
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"
