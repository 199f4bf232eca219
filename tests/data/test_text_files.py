"""Tables of texts that are written to files and read back, by the plan and by what a worker trains on."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value, concatenate_datasets
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from transformers import BertConfig as Encoder
from transformers import ByT5Tokenizer

from gaudi_tune.base.words import shown
from gaudi_tune.data.facts import CLASS_NAME_LENGTH, check_texts
from gaudi_tune.data.text import tables_of, tokenized
from search_spaces.bert import BASELINE
from trainables.bert import BertConfig

Row = tuple[str, str]
"""A text and the name of its class."""
TOKENS = 96
SHIFT = 3
"""ByT5's tokens are the bytes of UTF-8 and this number more; 1 is the end of the text."""
TRICKY = [
    "None", "NA", "null", "nan", "NaN", "N/A", "-", "01", "007", "1e5", "1.50", "-0", "2024-01-31", "10:00:00", "true",
    "2024-01-31T10:00:00", "FALSE", " good ", "\tgood", '"quoted"', "a, b", "a\nb", "a\r\nb", "#a", "=1+1", "é", "日本",
    "\ufeffa", "9007199254740993", "1_000", "inf", "\\N", "a;b", "'", "a\u2028b", "[1]", "{}", "0x10", "1,5",
]  # fmt: skip
"""Values that some reader of tables takes for something else."""


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An encoder whose tokens are the bytes of the text, so that what a worker gets can be read."""
    folder = tmp_path_factory.mktemp("encoder")
    ByT5Tokenizer().save_pretrained(folder)
    Encoder(vocab_size=400, max_position_embeddings=100_000).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GAUDI_TUNE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def config_of(data: Path | str, encoder: str, **changes: Any) -> BertConfig:
    settings = {**BASELINE, "epochs": 1, "max_length": TOKENS, "batch_size": 2, "train_samples": 0, "val_samples": 0}
    return BertConfig.from_dict({**settings, "dropout": 0.1, "data": str(data), "model": encoder, **changes})


def write_csv(file: Path, rows: list[Row], delimiter: str = ",") -> None:
    with file.open("w", newline="", encoding="utf-8") as opened:
        csv.writer(opened, delimiter=delimiter).writerows([("text", "label"), *rows])


def write_lines(file: Path, rows: list[Row]) -> None:
    lines = (json.dumps({"text": text, "label": label}, ensure_ascii=False) for text, label in rows)
    file.write_text("\n".join(lines), encoding="utf-8")


def write_json(file: Path, rows: list[Row]) -> None:
    file.write_text(json.dumps([{"text": text, "label": label} for text, label in rows]))


def write_parquet(file: Path, rows: list[Row]) -> None:
    pq.write_table(pa.table({"text": [text for text, _ in rows], "label": [label for _, label in rows]}), file)


WRITERS: dict[str, Callable[[Path, list[Row]], None]] = {
    "a.csv": write_csv,
    "a.tsv": lambda file, rows: write_csv(file, rows, "\t"),
    "a.jsonl": write_lines,
    "a.json": write_json,
    "a.parquet": write_parquet,
}


def rows_of(config: BertConfig) -> list[Row]:
    """The rows that a worker trains on and validates with, as their bytes."""
    data = tokenized(config)
    rows = []
    for split in ("train", "val"):
        part = data.split(split)
        for batch in (part.__getitems__([row]) for row in range(len(part))):
            ids = batch["input_ids"][0, : batch["attention_mask"][0].sum()].tolist()
            assert ids.pop() == 1
            rows.append(
                (bytes(token - SHIFT for token in ids).decode(errors="ignore"), data.labels[batch["labels"][0]])
            )
    return rows


characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")  # a CSV file may have no NUL
values = (st.text(characters, max_size=20) | st.sampled_from(TRICKY)).filter(lambda text: bool(text.strip()))


@pytest.mark.parametrize("name", WRITERS)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@example(texts=TRICKY, classes=["None", "NA"])
@example(texts=["a", "b"], classes=[" 007", "007"])
@given(
    texts=st.lists(values, min_size=1, max_size=4),
    classes=st.lists(values, min_size=2, max_size=2, unique=True).filter(
        lambda classes: not any(re.fullmatch(r"[-+]?[0-9]*\.[0-9]+", name) for name in classes)
    ),
)
def test_a_worker_trains_on_what_was_written(
    name: str, texts: list[str], classes: list[str], encoder: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = [(text, label) for label in classes for text in [*texts, "a third", "a fourth", "a fifth"]]
    file = tmp_path_factory.mktemp("data") / name
    WRITERS[name](file, rows)
    config = config_of(file, encoder)
    cut = [(text.encode()[: TOKENS - 1].decode(errors="ignore"), label) for text, label in rows]
    assert sorted(rows_of(config)) == sorted(cut)
    assert (
        f"2 classes ({', '.join(shown(name, CLASS_NAME_LENGTH) for name in sorted(classes))})"
        in check_texts(config)[0][0]
    )


FEW: list[Row] = [(f"text {number}", ("good", "bad")[number % 2]) for number in range(10)]


@pytest.mark.parametrize(
    "name", ["a[1]*?{b}", "a::b", "100%23 #1", "s3:", "-x", "日本 é", "a\nb", "$HOME ~ 'q' \"q\"", "zip:", "[red]"]
)
@pytest.mark.parametrize("inside", ["", "train", "train/part[0]"])
def test_a_path_may_have_any_character(name: str, inside: str, encoder: str, tmp_path: Path) -> None:
    data = tmp_path / name
    file = data / f"{inside}{name}.jsonl" if inside else data.with_suffix(".jsonl")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_lines(file, FEW)
    assert sorted(rows_of(config_of(data if inside else file, encoder))) == sorted(FEW)


def test_classes_that_no_line_can_show_are_shown_in_another_way(encoder: str, tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [(text, {"good": "a\nb", "bad": "x" * 500}[label]) for text, label in FEW])
    summary = check_texts(config_of(tmp_path / "a.jsonl", encoder))[0][0]
    assert summary.endswith(f"2 classes ('a\\nb', {'x' * 39}…)")


def test_json_numbers_and_truths_are_named_as_they_are_written(encoder: str, tmp_path: Path) -> None:
    written = ["007", "1e5", "9007199254740993", "true", "1.0", "12345678901234567890123"]
    file = tmp_path / "a.jsonl"
    lines = [f'{{"text": {label.lstrip("0")}, "label": {label.lstrip("0")}}}' for label in written for _ in range(3)]
    file.write_text("\n".join([*lines, '{"text": "x", "label": "1.50"}', ""]))
    rows = rows_of(config_of(file, encoder))
    labels = {label for _, label in rows}
    assert labels == {"7", "1e5", "9007199254740993", "true", "1.0", "12345678901234567890123", "1.50"}
    assert all(text in (label, "x") for text, label in rows)


def test_a_long_field_and_a_compressed_file_are_read(encoder: str, tmp_path: Path) -> None:
    write_csv(file := tmp_path / "a.csv", [("long " * 30_000, "bad"), *FEW])
    compressed = tmp_path / "a.csv.gz"
    compressed.write_bytes(gzip.compress(file.read_bytes()))
    files = [check_texts(config_of(data, encoder, max_length=8))[0] for data in (file, compressed)]
    assert files[0][0].endswith("9 texts to train on, 2 to validate, 2 classes (bad, good)")
    assert "data: 1 of 9 texts of train fill 8 tokens; what is longer is cut (--set max_length=N)" in files[0]
    assert files[0][1:] == files[1][1:]


def test_a_file_in_a_linked_folder_is_read(encoder: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    write_lines(tmp_path / "elsewhere" / "train.jsonl", FEW)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "round").symlink_to(tmp_path / "mine")
    assert sorted(rows_of(config_of(tmp_path / "mine", encoder))) == sorted(FEW)


def test_a_plan_says_what_is_divided_limited_and_left_aside(encoder: str, tmp_path: Path) -> None:
    for name in ("train-0", "train-1", "validation", "contest"):
        write_csv(tmp_path / f"{name}.csv", FEW)
    (tmp_path / "test.csv").write_text("text\nhello\n")
    facts = check_texts(config_of(tmp_path, encoder, train_samples=15, val_samples=2, hold_out=True))[0]
    assert facts[0].endswith(": 15 texts to train on, 2 to validate, 2 to test, 2 classes (bad, good)")
    assert [fact.removeprefix("data: ") for fact in facts[1:]] == [
        "the split train is made of 2 files: train-0.csv, train-1.csv",
        "left aside contest.csv: its name belongs to no split",
        f"10 of 10 rows of {tmp_path / 'train-1.csv'} are the same as rows of its split's other parts",
        f"the test part is left aside: there is no column 'label' in {tmp_path / 'test.csv'}; the columns are text. "
        "Name the right one with --set label_column=NAME.",
        "half of the validation texts are held out for the confirmation",
        "5 of 5 texts of val are the same as texts of train",
        "5 of 5 texts of test are the same as texts of train",
        "15 of 20 texts of train are used (train_samples=15; 0: all)",
        "2 of 5 texts of val are used (val_samples=2; 0: all)",
        "2 of 5 texts of test are used (val_samples=2; 0: all)",
    ]


LINE = '{"text": "a", "label": "b"}\n'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.jsonl",
            LINE + '{"text": ["a", "b"], "label": "b"}',
            r"row 2 of .* has text=\['a', 'b'\]: a text must be a s",
        ),
        (
            "a.jsonl",
            LINE + '{"text": {"role": "user"}, "label": 1}',
            r"row 2 of .* has text=\{'role': 'user'\}: a text m",
        ),
        (
            "a.jsonl",
            LINE + '{"text": "a", "label": {"b": 1}}',
            r"row 2 of .* has label=\{'b': '1'\}: a class must be a",
        ),
        ("a.jsonl", LINE + '{"text": NaN, "label": "b"}', r"row 2 of .* has no text"),
        ("a.jsonl", LINE + '{"text": "a", "label": 0.5}', r"row 2 of .* has label=0.5: a class must be a whole number"),
        (
            "a.jsonl",
            LINE + '{"text": "a\\ud800", "label": "b"}',
            r"row 2 of .* has text=.*: half a character is no text",
        ),
        (
            "a.jsonl",
            '{"text": "a", "text": "b", "label": 1}',
            r"a.jsonl cannot be read .*an object has the key 'text' twice",
        ),
        ("a.jsonl", LINE + '["a", "b"]', r"a.jsonl cannot be read .*line 2 is no object with the columns as keys"),
        ("a.jsonl", LINE + '{"text": "a", ', r"a.jsonl cannot be read .*line 2: Expecting property name"),
        (
            "a.jsonl",
            '{"text": "a", "lable": 1}\n',
            r"there is no column 'label' in .*a.jsonl; the columns are text, lable",
        ),
        ("a.csv", "text,label\ngood, really,b\n", r"a.csv cannot be read .*Expected 2 fields in line 2, saw 3"),
        ("a.csv", 'text,label\n"good,b\nbad,b\n', r"a.csv cannot be read .*unexpected end of data"),
        ("a.tsv", 'text\tlabel\n"Oh" he\tb\nwe\tc\n', r"a.tsv cannot be read .*' expected after '\"'\).*quotes around"),
        ("a.tsv", 'text\tlabel\n"Oh\tb\nwe\tc\na "b" c\tb\n', r"a.tsv cannot be read .*' expected after '\"'\)"),
        ("a.csv", "text,label,text\na,b,c\n", r"a.csv has several columns named 'text'; rename all but the right one"),
        ("a.parquet", "PAR1", r"a.parquet cannot be read \(ArrowInvalid: "),
        ("a.csv.gz", "text,label", r"a.csv.gz cannot be read \(BadGzipFile: "),
        ("train-test.csv", "text,label\na,b\n", r"train-test.csv belongs to the splits train and test; rename it"),
        ("train/test.csv", "text,label\na,b\n", r"train/test.csv is for test by its name, and for train by its folder"),
    ],
)
def test_unusable_values_are_named(name: str, content: str, message: str, encoder: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(content)
    data = tmp_path if name.startswith("train") else tmp_path / name
    with pytest.raises(ValueError, match=f"--data {data}: .*{message}"):
        check_texts(config_of(data, encoder))


def test_bytes_and_lists_of_a_parquet_file_are_no_texts(encoder: str, tmp_path: Path) -> None:
    for text in (b"a", ["a"]):
        pq.write_table(pa.table({"text": [text], "label": [1]}), tmp_path / "a.parquet")
        with pytest.raises(
            ValueError, match=r"row 1 of .*a\.parquet \(the first is 1\) has text=.*: a text must be a st"
        ):
            check_texts(config_of(tmp_path / "a.parquet", encoder))


def test_a_validation_file_without_the_column_is_named_and_not_its_first_row(encoder: str, tmp_path: Path) -> None:
    write_lines(tmp_path / "train.jsonl", FEW)
    (tmp_path / "validation.jsonl").write_text('{"text": "a"}\n')
    with pytest.raises(ValueError, match=r"there is no column 'label' in .*validation\.jsonl; the columns are text"):
        check_texts(config_of(tmp_path, encoder))


@pytest.mark.parametrize("name", ["[x]*", "a::b", "s3://bucket/x.csv", "x" * 5000, "a\0b", ""])
def test_a_model_that_is_no_path_and_no_name_on_the_hub_is_answered_at_once(name: str, encoder: str) -> None:
    with pytest.raises(ValueError, match=r"no such file or folder here, .*on the hub, a name is NAME or OWNER/NAME"):
        check_texts(config_of(name, encoder))


def test_a_split_of_the_hub_is_what_its_name_says(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Dataset.from_dict({"text": ["a"], "label": ["x"]})
    splits: tuple[str, ...] = ("train", "dev", "test", "unsupervised")
    monkeypatch.setattr("datasets.load_dataset", lambda name: DatasetDict(dict.fromkeys(splits, rows)))
    tables, notes = tables_of("some/texts", ["text", "label"])
    assert {name: part.place for name, (part,) in tables.items()} == {
        "train": "the split train", "validation": "the split dev", "test": "the split test",
    }  # fmt: skip
    assert notes == ["left aside the split unsupervised"]
    splits = ("train", "valid", "validation")
    assert tables_of("some/texts", ["text", "label"])[1] == ["left aside the split valid"]


def test_classes_of_a_parquet_file_of_datasets_keep_their_names(encoder: str, tmp_path: Path) -> None:
    features = Features({"text": Value("string"), "label": ClassLabel(names=["bad", "good"])})
    rows = Dataset.from_dict({"text": ["a", "b"] * 3, "label": [1, 0] * 3}, features=features)
    rows.to_parquet(tmp_path / "a.parquet")
    assert sorted(set(rows_of(config_of(tmp_path / "a.parquet", encoder)))) == [("a", "good"), ("b", "bad")]


@pytest.mark.parametrize(
    ("train", "other"),
    [
        ("trainset.csv", "testset.csv"),
        ("TrainData.csv", "TestData.csv"),
        ("Train2024.csv", "Val2024.csv"),
        ("my-training_rows.csv", "my-devset.csv"),
        ("a/trainFile.csv", "b/EvalFile.csv"),
        ("trainset/part.csv", "testset/part.csv"),
    ],
)
def test_a_split_is_known_by_each_word_of_a_name(train: str, other: str, encoder: str, tmp_path: Path) -> None:
    for name, text in ((train, "to train"), (other, "to validate")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_csv(tmp_path / name, [(text, label) for label in ("good", "bad")])
    data = tokenized(config_of(tmp_path, encoder))
    assert data.sizes == {"train": 2, "val": 2}
    assert [text for text, _ in rows_of(config_of(tmp_path, encoder))] == ["to train"] * 2 + ["to validate"] * 2


@pytest.mark.parametrize(
    "names", [("mytrain.csv", "myval.csv"), ("data.csv", "holdout.csv"), ("contest.csv", "latest.jsonl")]
)
def test_files_whose_names_say_no_split_are_not_all_training_data(
    names: tuple[str, str], encoder: str, tmp_path: Path
) -> None:
    for name in names:
        write_csv(tmp_path / name, FEW)
    with pytest.raises(
        ValueError, match=r"no name of its 2 files, such as .*, says which are for training; name them t"
    ):
        check_texts(config_of(tmp_path, encoder))


def test_numbered_files_are_training_data(encoder: str, tmp_path: Path) -> None:
    write_csv(tmp_path / "part-01.csv", FEW[:4])
    write_csv(tmp_path / "part-02.csv", FEW[4:])
    facts = check_texts(config_of(tmp_path, encoder))[0]
    assert "data: the split train is made of 2 files: part-01.csv, part-02.csv" in facts


@pytest.mark.parametrize("other", ["train.csv.gz", "backup/train.csv", "train_old.csv", "train.parquet"])
def test_rows_that_are_there_twice_are_said(other: str, encoder: str, tmp_path: Path) -> None:
    write_csv(tmp_path / "train.csv", FEW)
    (tmp_path / other).parent.mkdir(exist_ok=True)
    if other.endswith(".gz"):
        (tmp_path / other).write_bytes(gzip.compress((tmp_path / "train.csv").read_bytes()))
    else:
        (write_parquet if other.endswith(".parquet") else write_csv)(tmp_path / other, FEW)
    config = config_of(tmp_path, encoder)
    facts = "\n".join(check_texts(config)[0])
    assert re.search(r"data: 10 of 10 rows of .* are the same as rows of its split's other parts", facts)
    rows = rows_of(config)
    common = {*rows[:16]} & {*rows[16:]}
    assert f"data: {len(common)} of 4 texts of val are the same as texts of train" in facts


@pytest.mark.parametrize("copy", [str.upper, lambda t: f"{t} ", lambda t: f" {t}\r\n", lambda t: normalize("NFD", t)])
def test_copies_that_differ_in_white_space_case_or_accents_are_said(
    copy: Callable[[str], str], encoder: str, tmp_path: Path
) -> None:
    rows = [(f"café {number}", label) for number, (_, label) in enumerate(FEW)]
    write_csv(tmp_path / "train.csv", rows)
    write_csv(tmp_path / "val.csv", [(copy(text), label) for text, label in rows[:3]] + [("another", "good")])
    assert check_texts(config_of(tmp_path, encoder))[0][1:] == [
        "data: 3 of 4 texts of val are the same as texts of train"
    ]


def test_a_split_of_a_folder_whose_name_also_says_one_is_that_of_the_file(encoder: str, tmp_path: Path) -> None:
    (tmp_path / "train_test_split").mkdir()
    write_csv(tmp_path / "train_test_split" / "train.csv", FEW[:8])
    write_csv(tmp_path / "train_test_split" / "test.csv", [("another", "good")])
    assert "8 texts to train on, 1 to validate" in check_texts(config_of(tmp_path, encoder))[0][0]


@pytest.mark.parametrize(("spelt", "other"), [("1.0", "1"), ("True", "true"), ("good ", "good")])
def test_classes_that_may_be_the_same_are_said(spelt: str, other: str, encoder: str, tmp_path: Path) -> None:
    write_csv(tmp_path / "train.csv", [("a", spelt), ("b", "bad"), ("c", other)])
    write_csv(tmp_path / "val.csv", [("d", "bad")])
    facts = "\n".join(check_texts(config_of(tmp_path, encoder))[0])
    assert "classes that may be the same, and are written differently: " in facts
    assert repr(spelt) in facts and repr(other) in facts and "'bad'" not in facts


def test_a_folder_of_save_to_disk_is_read(encoder: str, tmp_path: Path) -> None:
    features = Features({"text": Value("string"), "label": ClassLabel(names=["bad", "good"])})
    train = Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]}, features=features)
    test = Dataset.from_dict({"text": ["c"], "label": [1]}, features=features)
    DatasetDict({"train": train, "test": test}).save_to_disk(tmp_path / "splits")
    assert rows_of(config_of(tmp_path / "splits", encoder)) == [("a", "good"), ("b", "bad"), ("c", "good")]
    train.with_format("torch", columns=["label"]).save_to_disk(tmp_path / "splits" / "train")
    assert rows_of(config_of(tmp_path / "splits", encoder)) == [("a", "good"), ("b", "bad"), ("c", "good")]
    concatenate_datasets([train] * 3).save_to_disk(tmp_path / "rows")
    assert sorted({*rows_of(config_of(tmp_path / "rows", encoder))}) == [("a", "good"), ("b", "bad")]


@pytest.mark.parametrize("name", ["val.xlsx", "validation_set.txt", "sub/test.csv.zip", "dev.arrow"])
def test_a_split_whose_ending_is_not_read_is_named(name: str, encoder: str, tmp_path: Path) -> None:
    write_csv(tmp_path / "train.csv", FEW)
    (tmp_path / "sub").mkdir()
    for other in (name, "README.md", "contest.log"):
        (tmp_path / other).write_text("x")
    facts = check_texts(config_of(tmp_path, encoder))[0]
    assert [fact for fact in facts if "left aside" in fact] == [
        f"data: left aside {name}: its ending is none of .csv, .tsv, .json, .jsonl, .ndjson, .parquet"
    ]


def test_a_text_that_is_of_two_classes_is_said(encoder: str, tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", [*FEW, ("TEXT  1", "good"), ("text 2", "bad")])
    facts = check_texts(config_of(tmp_path / "a.csv", encoder))[0]
    assert "data: equal texts are of several classes: 2, the first of bad and good" in facts
