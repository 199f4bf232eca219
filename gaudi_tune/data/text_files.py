"""Reads tables of texts from CSV, TSV, JSON, JSON Lines and parquet files, and from what ``save_to_disk`` of datasets
wrote, each value exactly as it stands in its file."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from gaudi_tune.base.errors import first_line
from gaudi_tune.base.files import files_below
from gaudi_tune.base.words import shown
from gaudi_tune.private.datasets import import_datasets

if TYPE_CHECKING:
    from datasets import Dataset

SPLIT_WORDS = {
    "train": {"train", "training"},
    "validation": {"validation", "valid", "dev", "val"},
    "test": {"test", "testing", "eval", "evaluation"},
}
"""Words in the name of a file or of a folder above it that say to which split it belongs, as for datasets. Each may
have "set", "data" or the like at its end, as in trainset.csv."""
SPLIT_WORD_ENDS = re.compile(r"(?<=.)(set|data|file|split|part|rows)$")
WORD_BORDERS = re.compile(r"[\W_0-9]+|(?<=[a-z])(?=[A-Z])")
"""What divides a name into words: test_2, TestData."""
PLAIN_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
"""What counts as a number in a CSV file."""
SAVED_STATE, SAVED_SPLITS = "state.json", "dataset_dict.json"
"""The file that ``save_to_disk`` of datasets writes beside the rows of a split, and the one above the splits."""


class Number(str):
    """A number as its file writes it, so that 007, 1e5 and numbers of any size stay what they are."""

    __slots__ = ()

    @property
    def is_whole(self) -> bool:
        """Whether it is a whole number."""
        return not re.search(r"[.eE]", self) or float(self).is_integer()


@dataclass(frozen=True)
class Table:
    """Rows of a file, or of a split on the hub."""

    place: str
    """The file or the split, for errors."""
    columns: Sequence[str]
    """Names of all columns."""
    values: Mapping[str, Sequence[Any]]
    """The values of those columns that were asked for and exist. None stands for a missing one."""


def read_files(data: Path, columns: Sequence[str]) -> tuple[dict[str, list[Table]], list[str]]:
    """Return the tables of each split in a file or a folder, and remarks on files that are in no split.

    A file is training data as a whole. The files in a folder belong to splits by the words in their names. Where no
    name has such a word, one file, or several that differ in a number, are training data.

    Raises:
        ValueError: There are no such files, one cannot be read, or their names do not say which of them are for
            training; the message says which, and why.
    """
    if data.is_file():
        if _reader(data) is None:
            raise ValueError(f"a file must be one of {', '.join(READERS)}, but this is {data.suffix!r}")
        return {"train": [_read_table(data, columns)]}, []
    files = _readable_below(data)
    if not files:
        raise ValueError(f"there are no files in the folder that end in {', '.join(READERS)}; put in train.* and val.*")
    by_split: dict[str | None, list[Path]] = {}
    for file in files:
        by_split.setdefault(_split_of(file.relative_to(data)), []).append(file)
    leftovers = by_split.pop(None, [])
    if not by_split:
        if len({re.sub("[0-9]+", "", str(file)) for file in leftovers}) > 1:
            raise ValueError(
                f"no name of its {len(leftovers)} files, such as {shown(str(leftovers[0].relative_to(data)))}, says "
                f"which are for training; name them train*, val* and test*, or put them into folders of these names"
            )
        by_split, leftovers = {"train": leftovers}, []
    names = {split: [shown(str(file.relative_to(data))) for file in parts] for split, parts in by_split.items()}
    notes = [
        f"the split {split} is made of {len(parts)} files: {', '.join(parts)}"
        for split, parts in names.items()
        if len(parts) > 1
    ]
    notes += [f"left aside {shown(str(file.relative_to(data)))}: its name belongs to no split" for file in leftovers]
    notes += [
        f"left aside {shown(str(file.relative_to(data)))}: its ending is none of {', '.join(READERS)}"
        for file in files_below(data)
        if not _reader(file) and file.parent not in files and _words_in(file.stem) & set().union(*SPLIT_WORDS.values())
    ]
    return {str(split): [_read_table(file, columns) for file in parts] for split, parts in by_split.items()}, notes


def _readable_below(folder: Path) -> list[Path]:
    """Return the files that can be read, and in place of the files that save_to_disk wrote their folders."""
    files = files_below(folder)
    saved = sorted({file.parent for file in files if file.name == SAVED_STATE and _reader(file.parent)})
    others = [file for file in files if _reader(file) and file.name != SAVED_SPLITS and file.parent not in saved]
    return sorted([*saved, *others])


def _words_in(name: str) -> set[str]:
    return {SPLIT_WORD_ENDS.sub("", word.lower()) for word in WORD_BORDERS.split(name) if word}


def _split_of(file: Path) -> str | None:
    """Return the split that a file's name says, or else that of the nearest folder above it; None if none does.

    Raises:
        ValueError: A name says two splits, or a folder's whole name says another than what is in it.
    """
    split = None
    for path in (file, *file.parents):
        words = _words_in(path.name)
        splits = [split for split, names in SPLIT_WORDS.items() if words & names]
        if len(splits) > 1 and split is None:
            raise ValueError(f"the name of {file} belongs to the splits {' and '.join(splits)}; rename it")
        if split is None:
            split = next(iter(splits), None)
        elif len(words) == 1 and splits not in ([], [split]):
            raise ValueError(f"{file} is for {split} by its name, and for {splits[0]} by its folder {path}; rename one")
    return split


def _reader(file: Path) -> Callable[[Path, Sequence[str]], tuple[Sequence[str], Mapping[str, Sequence[Any]]]] | None:
    if (file / SAVED_STATE).is_file() and (file / "dataset_info.json").is_file():
        return _read_saved
    suffixes = [suffix.lower() for suffix in file.suffixes[-2:]]
    if suffixes[-1:] == [".gz"]:
        return READERS.get(suffixes[0]) if len(suffixes) == 2 and suffixes[0] != ".parquet" else None
    return READERS.get(suffixes[-1]) if suffixes else None


def _read_table(file: Path, columns: Sequence[str]) -> Table:
    if file.is_file() and not file.stat().st_size:
        raise ValueError(f"the file {file} is empty; give one with rows")
    reader = _reader(file)
    assert reader is not None
    try:
        names, values = reader(file, columns)
    except Exception as error:  # those of csv, json, gzip, pyarrow, decoders and the system
        raise ValueError(
            f"{file} cannot be read ({first_line(error)}). CSV and JSON must be UTF-8; a CSV file has commas, a TSV "
            f"file tabs, and both have quotes around values with one of these, a quote or a line break in them."
        ) from error
    if twice := [name for name in columns if list(names).count(name) > 1]:
        raise ValueError(f"{file} has several columns named {twice[0]!r}; rename all but the right one")
    return Table(str(file), names, values)


def _open(file: Path, newline: str | None = None) -> IO[str]:
    opens: Any = gzip.open if file.suffix.lower() == ".gz" else open
    opened: IO[str] = opens(file, "rt", encoding="utf-8-sig", newline=newline)
    return opened


def _read_csv(file: Path, columns: Sequence[str]) -> tuple[list[str], dict[str, Sequence[Any]]]:
    import pandas

    delimiter = "\t" if ".tsv" in map(str.lower, file.suffixes) else ","
    csv.field_size_limit(2**31 - 1)
    with _open(file, newline="") as opened:
        # A quote that begins a value and is none swallows rows up to the next one, which pandas does not mind.
        deque(csv.reader(opened, delimiter=delimiter, strict=True), maxlen=0)
        opened.seek(0)
        table = pandas.read_csv(opened, sep=delimiter, header=None, dtype=str, keep_default_na=False)
    names, *_ = table.values.tolist()
    values = {name: table[names.index(name)].tolist()[1:] for name in columns if name in names}
    return names, {name: _numbers(column) for name, column in values.items()}


def _numbers(values: list[str]) -> Sequence[str]:
    """Return a column as numbers if all of its values are numbers or missing, as those that a short row lacks."""
    texts = ["" if value != value else value for value in values]  # pandas has NaN there
    if all(not text or PLAIN_NUMBER.fullmatch(text) for text in texts):
        return [Number(text) for text in texts]
    return texts


def _read_json(file: Path, columns: Sequence[str]) -> tuple[list[str], dict[str, Sequence[Any]]]:
    with _open(file) as opened:
        content = opened.read()
    try:
        document = _parse(content)
    except json.JSONDecodeError as error:
        if not error.msg.startswith("Extra data"):
            raise
        return _read_json_lines(file, columns)
    rows = document if isinstance(document, list) else [document]
    return _columns_of(((f"row {number}", row) for number, row in enumerate(rows, 1)), columns)


def _read_json_lines(file: Path, columns: Sequence[str]) -> tuple[list[str], dict[str, Sequence[Any]]]:
    def rows() -> Iterator[tuple[str, Any]]:
        for number, line in enumerate(opened, 1):
            if line.strip():
                try:
                    yield f"line {number}", _parse(line)
                except json.JSONDecodeError as error:
                    raise ValueError(f"line {number}: {error}") from error

    with _open(file) as opened:
        return _columns_of(rows(), columns)


def _columns_of(rows: Iterator[tuple[str, Any]], columns: Sequence[str]) -> tuple[list[str], dict[str, Sequence[Any]]]:
    names: dict[str, None] = {}
    values: dict[str, list[Any]] = {name: [] for name in columns}
    for place, row in rows:
        if not isinstance(row, dict):
            raise ValueError(f"{place} is no object with the columns as keys")
        names |= dict.fromkeys(row)
        for name, column in values.items():
            column.append(row.get(name))
    return list(names), {name: column for name, column in values.items() if name in names}


def _parse(text: str) -> Any:
    return json.loads(
        text,
        object_pairs_hook=_object,
        parse_int=Number,
        parse_float=Number,
        parse_constant=lambda name: None if name == "NaN" else Number(name),  # pandas writes NaN for a missing value
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"an object has the key {max(keys, key=keys.count)!r} twice")
    return entries


def _read_parquet(file: Path, columns: Sequence[str]) -> tuple[list[str], dict[str, Sequence[Any]]]:
    from pyarrow.parquet import ParquetFile

    with file.open("rb") as opened:
        parquet = ParquetFile(opened)
        names = parquet.schema_arrow.names
        table = parquet.read(columns=[name for name in dict.fromkeys(columns) if names.count(name) == 1])
    return names, values_of(import_datasets().Dataset(table), columns)[1]


def _read_saved(folder: Path, columns: Sequence[str]) -> tuple[list[str], dict[str, Sequence[Any]]]:
    rows = import_datasets().load_from_disk(str(folder))
    return values_of(rows.with_format(None), columns)  # the saved format may leave out columns


def values_of(rows: Dataset, columns: Sequence[str]) -> tuple[list[str], dict[str, Sequence[Any]]]:
    """Return the names of all columns of a data set, and the values of those that are asked for and exist."""
    from datasets import ClassLabel

    values: dict[str, Sequence[Any]] = {name: list(rows[name]) for name in columns if name in rows.column_names}
    for name, column in values.items():
        if isinstance(feature := rows.features[name], ClassLabel):
            # -1 stands for an unknown class, as in public test data.
            values[name] = [None if value is None or value < 0 else feature.int2str(value) for value in column]
    return rows.column_names, values


READERS: dict[str, Callable[[Path, Sequence[str]], tuple[Sequence[str], Mapping[str, Sequence[Any]]]]] = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".json": _read_json,
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".parquet": _read_parquet,
}
"""The function that reads the files of each ending, which may be followed by .gz unless it is parquet: it returns the
names of all columns, and the values of those that are asked for."""
