"""Labelled texts. They are loaded from files or the hub, tokenized once per node, and shared by its workers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gaudi_tune.base.node_cache import fingerprint, prepare_once
from gaudi_tune.data.configs import TextConfig
from gaudi_tune.data.encoder import encoder_config, positions
from gaudi_tune.data.held_out import Split, rows_of, rows_to_validate
from gaudi_tune.data.pretrained import first_line, from_pretrained

if TYPE_CHECKING:
    from datasets import DatasetDict
    from transformers import PreTrainedTokenizerBase

    from gaudi_tune.data.tokenized_texts import TokenizedTexts

VALIDATION_SPLITS = ("validation", "test")
"""Names of the split for validation; the first that the data has counts."""
BUILDERS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}
"""The builder of datasets for each file extension."""
TEXTS_AT_A_TIME = 1000
"""How many texts are tokenized at a time. A text of 512 tokens takes 80 kB until it is written."""
DEVIATIONS = 5
"""If rows have fewer classes than expected in a random sample, by this many standard deviations, they are not
random."""
TOKENIZED_FORMAT = 4
"""Version of the tokenized data. It is raised when the data of the same texts changes."""
ABOUT_FILE, TOKENIZER_FOLDER = "about.json", "tokenizer"


@dataclass(frozen=True)
class TokenizedData:
    """Tokenized texts in the node's cache."""

    folder: Path
    """The folder with their arrays, and with a folder for the tokenizer."""
    labels: list[str]
    """Names of the classes, in the order of the labels."""
    model_type: str
    """The name of the encoder's family in transformers."""
    sizes: dict[str, int]
    """Number of texts in each split: ``train``, ``val``, and ``test`` if test data is held out."""

    @property
    def tokenizer(self) -> Path:
        """The tokenizer's folder."""
        return self.folder / TOKENIZER_FOLDER

    def split(self, name: Split) -> TokenizedTexts:
        """Return the texts of a split."""
        from gaudi_tune.data.tokenized_texts import TokenizedTexts  # here, since a check needs no torch

        return TokenizedTexts(self.folder, name)


def tokenized(config: TextConfig) -> TokenizedData:
    """Return the tokenized data of ``config``. It is tokenized if this node has not done so yet.

    Raises:
        ValueError: The data or the encoder cannot be used; the message says why, and what to give instead.
    """
    names = ("text_column", "label_column", "max_length", "train_samples", "val_samples", "hold_out")
    key = {name: getattr(config, name) for name in names}
    key |= {"format": TOKENIZED_FORMAT, "data": fingerprint(config.data), "model": fingerprint(config.model)}
    folder = prepare_once("tokenized", key, lambda new_folder: _tokenize(config, new_folder))
    return TokenizedData(folder=folder, **json.loads((folder / ABOUT_FILE).read_text()))


def _tokenize(config: TextConfig, folder: Path) -> None:
    encoder = encoder_config(config.model)
    position_count = positions(encoder)
    if position_count is not None and config.max_length > position_count:
        raise ValueError(
            f"max_length must be at most the {position_count} positions of {config.model}, but got {config.max_length}"
        )
    splits, labels = _load_texts(config)
    tokenizer = _tokenizer(config.model)
    tokenizer.padding_side = "right"  # so that an attention mask can be kept as a length
    tokenizer.model_max_length = config.max_length  # it is saved with the tokenizer, and used in prediction
    sizes: dict[str, int] = {}
    for split, rows in splits.items():
        limit = config.train_samples if split == "train" else config.val_samples
        split_labels = _label_names(rows, config.label_column)
        rows = rows.select(range(min(limit or len(rows), len(rows))))
        _check_classes(config, split, split_labels[: len(rows)], split_labels)
        shape = (len(rows), config.max_length)
        ids = np.lib.format.open_memmap(folder / f"{split}_input_ids.npy", mode="w+", dtype=np.int32, shape=shape)
        lengths = np.empty(len(rows), dtype=np.int64)
        for start in range(0, len(rows), TEXTS_AT_A_TIME):
            chunk = slice(start, start + TEXTS_AT_A_TIME)
            encoded = encode(tokenizer, list(map(str, rows[chunk][config.text_column])))
            ids[chunk], lengths[chunk] = encoded["input_ids"], encoded["attention_mask"].sum(axis=1)
        ids.flush()
        np.save(folder / f"{split}_lengths.npy", lengths)
        classes = [labels.index(str(label)) for label in split_labels[: len(rows)]]
        np.save(folder / f"{split}_labels.npy", np.asarray(classes, dtype=np.int64))
        sizes[split] = len(rows)
    about = {"labels": labels, "model_type": encoder.model_type, "sizes": sizes}
    (folder / ABOUT_FILE).write_text(json.dumps(about))
    tokenizer.save_pretrained(folder / TOKENIZER_FOLDER)


def _check_classes(config: TextConfig, split: str, first_labels: list[Any], all_labels: list[Any]) -> None:
    """Check that the first rows of a split have as many classes as a random sample, since rows may be sorted."""
    class_count, sizes = len(set(first_labels)), np.array([*Counter(all_labels).values()])
    chances = (
        1 - (1 - len(first_labels) / len(all_labels)) ** sizes
    )  # the probability that a random sample has each class
    if class_count < chances.sum() - DEVIATIONS * np.sqrt(chances @ (1 - chances)):
        limit = "train_samples" if split == "train" else "val_samples"
        raise ValueError(
            f"--data {config.data}: the first {len(first_labels)} of {len(all_labels)} rows of the split {split} have "
            f"{class_count} of {len(sizes)} classes, where a draw has about {chances.sum():.0f}, so they must be "
            f"sorted; take all with --set {limit}=0, or shuffle them"
        )


def encode(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Return ``input_ids`` and ``attention_mask`` of shape (n, max_length), for training as well as prediction.

    The tokenizer's ``model_max_length`` is the ``max_length`` of :class:`TextConfig`.
    """
    encoded = tokenizer(texts, padding="max_length", truncation=True, return_tensors="np")
    return {name: encoded[name] for name in ("input_ids", "attention_mask")}


def _load_texts(config: TextConfig) -> tuple[Mapping[str, Any], list[str]]:
    """Return the splits ``train`` and ``val``, and ``test`` if it is held out, and the names of the classes."""
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
    _check_rows(config, "train", loaded["train"])
    validation = next((name for name in VALIDATION_SPLITS if name in loaded), None)
    if validation is None:
        splits = _split_off_validation(loaded["train"], config.label_column)
    else:
        _check_rows(config, validation, loaded[validation])
        splits = {"train": loaded["train"], "val": loaded[validation]}
    labels = sorted({str(name) for name in _label_names(splits["train"], config.label_column)})
    if len(labels) < 2:
        raise ValueError(
            f"--data {config.data}: the training texts have one class ({labels[0]}), and there is nothing to tell it "
            f"from; give two or more"
        )
    if not len(splits["val"]):
        reason = (
            "the validation split has no rows" if validation else "no class has three rows or more to take one from"
        )
        raise ValueError(f"--data {config.data}: there is nothing to validate on; {reason}")
    unseen = {str(name) for name in _label_names(splits["val"], config.label_column)} - set(labels)
    if unseen:
        raise ValueError(f"--data {config.data}: classes {sorted(unseen)} are in the validation split and not in train")
    if config.hold_out:
        splits |= _test_data(config, splits["val"], loaded.get("test") if validation != "test" else None, labels)
    return splits, labels


def _split_off_validation(rows: Any, label_column: str) -> dict[str, Any]:
    """Return training and validation data, for data that has no part for validation."""
    labels = np.array([str(name) for name in _label_names(rows, label_column)])
    validation_rows = rows_to_validate(labels)
    training_rows = np.setdiff1d(np.arange(len(rows)), validation_rows)
    return {"train": rows.select(training_rows), "val": rows.select(validation_rows)}


def _test_data(config: TextConfig, val: Any, public_test: Any, labels: list[str]) -> dict[str, Any]:
    """Return held-out test data: a labelled test split, or else half of the validation data.

    In the second case the result also has the other half as validation data.
    """
    if public_test is not None:
        test_labels = {str(name) for name in _label_names(public_test, config.label_column)}
        if test_labels <= set(labels):  # otherwise it has no labels, as in many public benchmarks
            _check_rows(config, "test", public_test)
            return {"test": public_test}
    classes = np.unique(list(map(str, _label_names(val, config.label_column))), return_inverse=True)[1]
    return {"val": val.select(rows_of("val", classes)), "test": val.select(rows_of("test", classes))}


def _check_rows(config: TextConfig, split: str, rows: Any) -> None:
    """Check that every row of a split has a text and a class."""
    labels = _label_names(rows, config.label_column)
    for number, (text, label) in enumerate(zip(rows[config.text_column], labels, strict=True), 1):
        if text is None or not str(text).strip():
            problem = f"has no {config.text_column}; fill it in or leave the row out"
        elif label is None:
            problem = f"has no {config.label_column}; fill it in or leave the row out"
        elif isinstance(label, list | dict) or (isinstance(label, float) and not label.is_integer()):
            problem = f"has {config.label_column}={label}: a class must be a whole number or a name"
        else:
            continue
        path = Path(config.data)
        files = [path] if path.is_file() else [file for file in path.rglob("*") if split in file.name]
        place = str(files[0]) if len(files) == 1 else f"the split {split}"
        raise ValueError(f"--data {config.data}: row {number} of {place} (the first is 1) {problem}")


def _label_names(rows: Any, column: str) -> list[Any]:
    feature = rows.features[column]
    values = rows[column]
    if not hasattr(feature, "int2str"):
        return list(values)
    # -1 stands for an unknown class, as in the public test data of many benchmarks.
    return [None if value is None or value < 0 else feature.int2str(value) for value in values]


def _load_dataset(data: str) -> DatasetDict:
    from datasets import DatasetDict, disable_progress_bars, load_dataset

    path = Path(data)
    if path.is_dir() and not any(p.is_file() for p in path.rglob("*")):
        raise ValueError(f"--data {data}: the folder is empty; give one with train.* and test.* (csv, jsonl, parquet)")
    if path.is_file() and not path.stat().st_size:
        raise ValueError(f"--data {data}: the file is empty; give one with a text and a class in each row")
    builder = BUILDERS.get(path.suffix)
    if path.is_file() and builder is None:
        raise ValueError(f"--data {data}: a file must be one of {', '.join(BUILDERS)}, but this is {path.suffix!r}")
    disable_progress_bars()
    try:
        loaded = load_dataset(builder, data_files={"train": str(path)}) if path.is_file() else load_dataset(data)
    except Exception as error:
        # Each builder and each network layer of datasets raises other kinds of errors here.
        if not path.exists():
            raise ValueError(
                f"--data {data}: no such file or folder here, and the hub lacks it or cannot be reached "
                f"({first_line(error)}). Give a local path or a name on the hub."
            ) from error
        reason: BaseException = error
        while reason.__cause__ is not None:  # the error of datasets itself does not say why
            reason = reason.__cause__
        raise ValueError(
            f"--data {data}: it is there, but cannot be read ({first_line(reason)}). All files must have the same "
            f"columns and one of the endings {', '.join(BUILDERS)}; CSV must be UTF-8 with commas."
        ) from error
    assert isinstance(loaded, DatasetDict)
    return loaded


def _tokenizer(model: str) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    tokenizer: PreTrainedTokenizerBase = from_pretrained(AutoTokenizer.from_pretrained, model)
    return tokenizer
