"""Labelled texts. They are loaded from files or the hub, tokenized once per node, and shared by its workers."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gaudi_tune.base.errors import first_line
from gaudi_tune.base.node_cache import fingerprint, prepare_once
from gaudi_tune.base.words import shown
from gaudi_tune.data.configs import TextConfig, limited
from gaudi_tune.data.held_out import VALIDATION_PARTS, Split, compared, divided, similar_classes
from gaudi_tune.data.pretrained import check_length, encoder_config, from_pretrained
from gaudi_tune.data.text_files import SPLIT_WORDS, Number, Table, read_files, values_of
from gaudi_tune.private.datasets import import_datasets

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from gaudi_tune.data.tokenized_texts import TokenizedTexts

HUB_NAME = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96})?")
"""The form of a data set's name on the hub."""
VALUE_SHOWN = 60
"""How many characters of a value an error shows."""
TEXTS_AT_A_TIME = 1000
"""How many texts are tokenized at a time. A text of 512 tokens takes 80 kB until it is written."""
DEVIATIONS = 5
"""If rows have fewer classes than expected in a random sample, by this many standard deviations, they are not
random."""
TOKENIZED_FORMAT = 7
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
    notes: list[str]
    """Remarks on how the data was read, for the user: what was divided, limited, cut or left aside."""

    @property
    def tokenizer(self) -> Path:
        """The tokenizer's folder."""
        return self.folder / TOKENIZER_FOLDER

    def split(self, name: Split, padded_lengths: int = 1) -> TokenizedTexts:
        """Return the texts of a split, padded to at most so many lengths (1: all to ``max_length``)."""
        from gaudi_tune.data.tokenized_texts import TokenizedTexts  # here, since a check needs no torch

        return TokenizedTexts(self.folder, name, padded_lengths)


class LabelledText(NamedTuple):
    """A text and the name of its class, as the data has them."""

    text: str
    label: str


class LabelledTexts(list[LabelledText]):
    """The texts of a split, in the order of the data."""

    @property
    def texts(self) -> list[str]:
        """The text of each row."""
        return [row.text for row in self]

    @property
    def labels(self) -> list[str]:
        """The name of each row's class."""
        return [row.label for row in self]


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
    check_length(encoder, config.model, config.max_length)
    try:
        splits, labels, notes = _load_texts(config)
    except ValueError as error:
        raise ValueError(f"--data {config.data}: {error}") from error
    tokenizer = tokenizer_of(config.model)
    tokenizer.padding_side = "right"  # so that an attention mask can be kept as a length
    tokenizer.model_max_length = config.max_length  # it is saved with the tokenizer, and used in prediction
    class_numbers = {label: number for number, label in enumerate(labels)}
    sizes: dict[str, int] = {}
    full: list[str] = []
    for split, all_rows in splits.items():
        rows = _first_texts(config, split, all_rows, notes)
        sizes[split], texts = len(rows), rows.texts
        shape = (sizes[split], config.max_length)
        ids = np.lib.format.open_memmap(folder / f"{split}_input_ids.npy", mode="w+", dtype=np.int32, shape=shape)
        lengths = np.empty(sizes[split], dtype=np.int64)
        for start in range(0, sizes[split], TEXTS_AT_A_TIME):
            chunk = slice(start, start + TEXTS_AT_A_TIME)
            encoded = encode(tokenizer, texts[chunk])
            ids[chunk], lengths[chunk] = encoded["input_ids"], encoded["attention_mask"].sum(axis=1)
        ids.flush()
        np.save(folder / f"{split}_lengths.npy", lengths)
        classes = np.array([class_numbers[label] for label in rows.labels], dtype=np.int64)
        np.save(folder / f"{split}_labels.npy", classes)
        if full_rows := int((lengths == config.max_length).sum()):
            full.append(f"{full_rows} of {sizes[split]} texts of {split}")
    if full:
        notes.append(f"{', '.join(full)} fill {config.max_length} tokens; what is longer is cut (--set max_length=N)")
    about = {"labels": labels, "model_type": encoder.model_type, "sizes": sizes, "notes": notes}
    (folder / ABOUT_FILE).write_text(json.dumps(about))
    tokenizer.save_pretrained(folder / TOKENIZER_FOLDER)


def _first_texts(config: TextConfig, split: str, texts: LabelledTexts, notes: list[str]) -> LabelledTexts:
    """Return as many texts of a split as the configuration uses, and note how many there are."""
    limit = config.train_samples if split == "train" else config.val_samples
    if not limit or limit >= len(texts):
        return texts
    # Rows may be sorted: the first should have as many classes as a random sample, of which each is in it by a chance.
    class_count = len({*texts.labels[:limit]})
    sizes = np.array([*Counter(texts.labels).values()])
    chances = 1 - (1 - limit / len(texts)) ** sizes
    if class_count < chances.sum() - DEVIATIONS * np.sqrt(chances @ (1 - chances)):
        option = "train_samples" if split == "train" else "val_samples"
        raise ValueError(
            f"--data {config.data}: the first {limit} of {len(texts)} rows of the split {split} have "
            f"{class_count} of {len(sizes)} classes, where a draw has about {chances.sum():.0f}, so they must be "
            f"sorted; take all with --set {option}=0, or shuffle them"
        )
    notes.append(limited("texts", split, limit, len(texts)))
    return LabelledTexts(texts[:limit])


def encode(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Return ``input_ids`` and ``attention_mask`` of shape (n, max_length), for training as well as prediction.

    The tokenizer's ``model_max_length`` is the ``max_length`` of :class:`TextConfig`.
    """
    encoded = tokenizer(texts, padding="max_length", truncation=True, return_tensors="np")
    return {name: encoded[name] for name in ("input_ids", "attention_mask")}


def _load_texts(config: TextConfig) -> tuple[dict[Split, LabelledTexts], list[str], list[str]]:
    """Return the splits (``train``, ``val``, and ``test`` if it is held out), the names of the classes, and remarks."""
    tables, notes = tables_of(config.data, _columns(config))
    notes += _parts_with_equal_rows(config, tables)
    parts = {"train": _labelled(config, tables.get("train", ()))}
    labels = sorted({*parts["train"].labels})
    if len(labels) == 1:
        raise ValueError(
            f"the training texts have one class ({labels[0]}), and there is nothing to tell it from; give two or more"
        )
    notes += similar_classes(labels)
    validation = next((name for name in VALIDATION_PARTS if name in tables), None)
    if validation is not None:
        parts[validation] = _labelled(config, tables[validation])
    if config.hold_out and validation == "validation" and "test" in tables:
        try:
            parts["test"] = _labelled(config, tables["test"])
            if unseen := sorted({*parts["test"].labels} - {*labels}):
                raise ValueError(f"its class {unseen[0]!r} is not in train")
        except ValueError as error:  # such as one without labels, as in many public benchmarks
            parts.pop("test", None)
            notes.append(f"the test part is left aside: {error}")
    rows, remarks = divided(parts, "texts", hold_out=config.hold_out, class_of=lambda row: row.label)
    splits = {split: LabelledTexts(texts) for split, texts in rows.items()}
    if unseen := sorted({*splits["val"].labels} - {*labels}):
        raise ValueError(f"classes {unseen} are in the validation split and not in train")
    return splits, labels, [*notes, *remarks]


def _parts_with_equal_rows(config: TextConfig, tables: Mapping[str, Sequence[Table]]) -> Iterator[str]:
    """Yield a remark on each part of a split that has rows of earlier parts of the same split."""
    for parts in tables.values():
        earlier_rows = set[tuple[str, ...]]()
        for part in parts if len(parts) > 1 else ():
            columns = [(compared(str(value)) for value in part.values.get(name, ())) for name in _columns(config)]
            rows = [*zip(*columns, strict=False)]  # a part may lack a column, which is answered where it is needed
            if common := sum(row in earlier_rows for row in rows):
                place = shown(part.place)
                yield f"{common} of {len(rows)} rows of {place} are the same as rows of its split's other parts"
            earlier_rows |= {*rows}


def _labelled(config: TextConfig, tables: Sequence[Table]) -> LabelledTexts:
    """Return the rows of a split.

    Raises:
        ValueError: A table lacks a column, or a row lacks a text or a class that can be used.
    """
    rows = LabelledTexts()
    for table in tables:
        columns = [_column(config, table, name) for name in _columns(config)]
        for number, (text, label) in enumerate(zip(*columns, strict=True), 1):
            try:
                text, label = written(text, config.text_column, "a text"), _class_name(label, config.label_column)
            except ValueError as error:
                raise ValueError(f"row {number} of {table.place} (the first is 1) {error}") from error
            rows.append(LabelledText(text, label))
    return rows


def _columns(config: TextConfig) -> tuple[str, str]:
    return config.text_column, config.label_column


def _column(config: TextConfig, table: Table, name: str) -> Sequence[Any]:
    if name in table.values:
        return table.values[name]
    option = "text_column" if name == config.text_column else "label_column"
    raise ValueError(
        f"there is no column {name!r} in {table.place}; the columns are {', '.join(table.columns)}. Name the right one "
        f"with --set {option}=NAME."
    )


def _class_name(value: Any, column: str) -> str:
    name = written(value, column, "a class")
    is_fraction = not value.is_whole if isinstance(value, Number) else isinstance(value, float) and value % 1 != 0
    if is_fraction:
        raise ValueError(f"has {column}={name}: a class must be a whole number or a name")
    return name


def is_missing(value: Any) -> bool:
    """Return whether there is no value, or a text of white space alone."""
    return value is None or value != value or (isinstance(value, str) and not value.strip())  # NaN is not itself


def written(value: Any, column: str, kind: str) -> str:
    """Return a value as its file writes it.

    Raises:
        ValueError: It is missing, or a list, an object or bytes.
    """
    if is_missing(value):
        raise ValueError(f"has no {column}; fill it in or leave the row out")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict | bytes | tuple):
        raise ValueError(f"has {column}={shown(repr(value), VALUE_SHOWN)}: {kind} must be a string or a number")
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"has {column}={shown(text, VALUE_SHOWN)}: half a character is no text ({error})") from error
    return text


def tables_of(data: str, columns: Sequence[str]) -> tuple[dict[str, list[Table]], list[str]]:
    """Return the tables of each split, of files or of a data set on the hub, and remarks.

    Raises:
        ValueError: There are none, or they cannot be read.
    """
    path = Path(data).expanduser()
    if data and os.path.exists(path):
        return read_files(path, columns)
    datasets = import_datasets()
    datasets.disable_progress_bars()
    try:
        if not HUB_NAME.fullmatch(data):
            raise ValueError("on the hub, a name is NAME or OWNER/NAME")
        loaded = datasets.load_dataset(data)
    except Exception as error:
        # Each builder and each network layer of datasets raises other kinds of errors here.
        raise ValueError(
            f"no such file or folder here, and the hub lacks it or cannot be reached ({first_line(error)}). Give a "
            f"local path or a name on the hub."
        ) from error
    tables: dict[str, list[Table]] = {}
    notes = []
    for split, rows in loaded.items():
        name = next((standard for standard, words in SPLIT_WORDS.items() if split.lower() in words), None)
        if name is None or (name != split and name in {*loaded, *tables}):
            notes.append(f"left aside the split {split}")
        else:
            tables[name] = [Table(f"the split {split}", *values_of(rows, columns))]
    return tables, notes


def tokenizer_of(model: str) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a model.

    Raises:
        ValueError: There is no such model.
    """
    from transformers import AutoTokenizer

    tokenizer: PreTrainedTokenizerBase = from_pretrained(AutoTokenizer.from_pretrained, model)
    return tokenizer
