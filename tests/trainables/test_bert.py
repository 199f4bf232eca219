import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

from gaudi_tune.data.pretrained import COUNT_AFTER_PADDING, positions
from gaudi_tune.data.text import tokenized
from search_spaces.bert import BASELINE
from trainables.bert import BertConfig, check

Configure = Callable[..., BertConfig]


@pytest.fixture
def configure(sample: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configure:
    """Return a function that varies the sample recipe's baseline; tokenized data goes to a cache of the test."""
    monkeypatch.setenv("GAUDI_TUNE_CACHE", str(tmp_path / "cache"))
    return lambda **changes: BertConfig.from_dict({**sample, **BASELINE, "epochs": 1, **changes})


def write_csv(folder: Path, split: str, rows: list[tuple[str, str]], header: str = "review,stars") -> Path:
    folder.mkdir(exist_ok=True)
    lines = [header, *(f"{text},{label}" for text, label in rows)]
    (folder / f"{split}.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_any_text_classification_data_works_by_naming_its_columns(configure: Configure, tmp_path: Path) -> None:
    write_csv(tmp_path / "mine", "train", [("good film", "pos"), ("bad film", "neg"), ("a film", "pos")])
    write_csv(tmp_path / "mine", "validation", [("good", "pos"), ("worse than the worst film of all", "neg")])
    columns = {"text_column": "review", "label_column": "stars"}
    config = configure(data=str(tmp_path / "mine"), max_length=8, batch_size=2, **columns)
    assert "3 texts to train on, 2 to validate, 2 classes (neg, pos)" in check(config)[0]
    data = tokenized(config)
    batch = data.split("train").__getitems__([0, 1])
    assert batch["labels"].tolist() == [1, 0]
    assert batch["input_ids"].shape == (2, 8)
    assert batch["attention_mask"].sum(dim=1).tolist() == (batch["input_ids"] != 0).sum(dim=1).tolist()


def test_one_file_is_split(configure: Configure, tmp_path: Path) -> None:
    rows = [{"text": f"text number {n}", "label": n % 2} for n in range(50)]
    file = tmp_path / "all.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    data = tokenized(configure(data=str(file)))
    assert (data.sizes, data.labels) == ({"train": 40, "val": 10}, ["0", "1"])


def test_rows_of_rare_classes_train(configure: Configure, tmp_path: Path) -> None:
    rows = [{"text": f"text {n}", "label": ["rare", "good", "bad"][min(n, 1) + n % 2]} for n in range(41)]
    file = tmp_path / "all.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    data = tokenized(configure(data=str(file)))
    assert data.labels == ["bad", "good", "rare"]
    assert data.sizes == {"train": 33, "val": 8}
    assert 2 not in data.split("val").labels


def ids(texts: Any) -> set[bytes]:
    return {row.tobytes() for row in texts.input_ids}


def test_without_a_test_part_half_of_the_validation_texts_is_held_out(
    configure: Configure, sample: dict[str, Any], tmp_path: Path
) -> None:
    for split in ("train", "validation"):
        shutil.copy(Path(sample["data"]) / f"{split}.jsonl", tmp_path)
    whole, data = tokenized(configure(data=str(tmp_path))), tokenized(configure(data=str(tmp_path), hold_out=True))
    assert "test" not in whole.sizes
    assert len(data.split("val")) + len(data.split("test")) == len(whole.split("val"))
    assert ids(data.split("val")) | ids(data.split("test")) == ids(whole.split("val"))
    both = np.bincount(data.split("val").labels), np.bincount(data.split("test").labels)
    assert max(abs(both[0] - both[1])) <= 1, "each class is halved"
    assert ids(data.split("val")).isdisjoint(ids(data.split("test")))


@pytest.mark.parametrize(("public", "held_out"), [("pos", 3), ("nobody told", 1)])
def test_a_test_split_with_labels_is_held_out(configure: Configure, tmp_path: Path, public: str, held_out: int) -> None:
    write_csv(tmp_path / "mine", "train", [("good film", "pos"), ("bad film", "neg"), ("a film", "pos")])
    write_csv(tmp_path / "mine", "validation", [("good", "pos"), ("bad", "neg")])
    write_csv(tmp_path / "mine", "test", [("fair", public), ("fine", public), ("fun", "neg")])
    columns = {"text_column": "review", "label_column": "stars", "batch_size": 2}
    data = tokenized(configure(data=str(tmp_path / "mine"), max_length=8, hold_out=True, **columns))
    assert len(data.split("test")) == data.sizes["test"] == held_out
    assert len(data.split("val")) == (2 if held_out == 3 else 1)


def test_sample_counts_take_the_first_rows(configure: Configure) -> None:
    few, more = tokenized(configure(train_samples=16, val_samples=4)), tokenized(configure(train_samples=32))
    assert few.sizes == {"train": 16, "val": 4}
    assert (len(few.split("train")), len(few.split("val"))) == (16, 4)
    np.testing.assert_array_equal(few.split("train").input_ids, more.split("train").input_ids[:16])


def test_first_rows_that_are_sorted_by_class_are_refused(configure: Configure, tmp_path: Path) -> None:
    mine = write_csv(
        tmp_path / "mine", "train", [(f"{label} film", label) for label in ("bad", "good") for _ in range(9)]
    )
    write_csv(mine, "validation", [("good", "good"), ("bad", "bad")])
    columns = {"data": str(mine), "text_column": "review", "label_column": "stars", "batch_size": 2}
    with pytest.raises(
        ValueError, match=r"the first 8 of 18 rows .* train have 1 of 2 classes, where a draw has about 2, .*_samples=0"
    ):
        tokenized(configure(**columns, train_samples=8))
    assert tokenized(configure(**columns, train_samples=10)).sizes["train"] == 10


def test_few_rows_of_many_classes_are_no_sorted_ones(configure: Configure, tmp_path: Path) -> None:
    rows = [(f"text {n}", f"class {n * 7 % 40}") for n in range(200)]
    mine = write_csv(write_csv(tmp_path / "mine", "train", rows), "validation", rows)
    columns = {"data": str(mine), "text_column": "review", "label_column": "stars", "batch_size": 2}
    assert tokenized(configure(**columns, val_samples=12)).sizes["val"] == 12
    write_csv(mine, "validation", sorted(rows, key=lambda row: row[1]))
    with pytest.raises(ValueError, match=r"the first 30 of 200 .* val have 6 of 40 .* about 22, so"):
        tokenized(configure(**columns, val_samples=30))


def test_many_texts_are_tokenized_as_few_are(
    configure: Configure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    at_once = tokenized(configure())
    monkeypatch.setenv("GAUDI_TUNE_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr("gaudi_tune.data.text.TEXTS_AT_A_TIME", 7)
    in_parts = tokenized(configure())
    np.testing.assert_array_equal(in_parts.split("train").input_ids, at_once.split("train").input_ids)
    np.testing.assert_array_equal(in_parts.split("val").lengths, at_once.split("val").lengths)


def test_text_is_tokenized_once(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    check(configure())
    monkeypatch.setattr("gaudi_tune.data.text._tokenize", lambda *_: pytest.fail("tokenized again"))
    check(configure(lr=0.5, batch_size=32))


UNUSABLE: dict[str, tuple[Any, ...]] = {
    "missing": (lambda p: None, {}, r"the hub lacks it or cannot be reached .*Give a local path or a name on the hub"),
    "empty folder": (
        lambda p: p.mkdir(),
        {},
        "there are no files in the folder that end in .csv, .tsv, .*; put in train",
    ),
    "empty file": (lambda p: p.with_suffix(".csv").touch(), {}, "the file .*mine.csv is empty"),
    "unknown kind": (
        lambda p: p.write_text("x"),
        {},
        r"a file must be one of .csv, .tsv, .*, .parquet, but this is ''",
    ),
    "no label column": (
        lambda p: write_csv(p, "train", [("a", "b")]),
        {"text_column": "review"},
        r"no column 'label'.*--set label_column",
    ),
    "unseen class": (
        lambda p: (
            write_csv(p, "train", [("a", "b"), ("a", "d")], "text,label"),
            write_csv(p, "test", [("a", "c")], "text,label"),
        ),
        {},
        r"classes \['c'\] are in the validation split and not in train",
    ),
    "empty text": (
        lambda p: write_csv(p, "train", [("a", "b"), ("c", "d"), ("", "b")], "text,label"),
        {},
        r"row 3 of .*/train\.csv \(the first is 1\) has no text; fill it in or leave the row out",
    ),
    "blank text": (
        lambda p: (
            write_csv(p, "train", [("a", "b"), ("c", "d")], "text,label"),
            write_csv(p, "test", [("a", "b"), (" ", "d")], "text,label"),
        ),
        {},
        r"row 2 of .*/test\.csv \(the first is 1\) has no text",
    ),
    "no label": (
        lambda p: write_csv(p, "train", [("a", "b"), ("c", "")], "text,label"),
        {},
        r"row 2 of .*/train\.csv \(the first is 1\) has no label; fill it in",
    ),
    "fraction": (
        lambda p: write_csv(p, "train", [("a", "1"), ("c", "0.5")], "text,label"),
        {},
        r"row 2 of .*/train\.csv .* has label=0\.5: a class must be a whole number or a name",
    ),
    "latin-1": (
        lambda p: p.with_suffix(".csv").write_bytes("text,label\nGrüße,b\n".encode("latin-1")),
        {},
        r".*mine\.csv cannot be read \(UnicodeDecodeError: .*can't decode .*CSV and JSON must be UTF-8",
    ),
    "nothing to validate on": (
        lambda p: write_csv(p, "train", [("a", "b"), ("c", "d")], "text,label"),
        {},
        "there is nothing to validate on; give more rows, or a split or file 'validation' with some",
    ),
    "one class": (
        lambda p: write_csv(p, "train", [("a", "b"), ("c", "b")], "text,label"),
        {},
        r"the training texts have one class \(b\), and there is nothing to tell it from; give two or more",
    ),
}


@pytest.mark.parametrize(("prepare", "changes", "message"), UNUSABLE.values(), ids=UNUSABLE)
def test_data_that_cannot_be_used_is_named(
    prepare: Callable[[Path], Any], changes: dict[str, Any], message: str, configure: Configure, tmp_path: Path
) -> None:
    data = tmp_path / "mine"
    prepare(data)
    data = next((file for file in tmp_path.glob("mine.*")), data)
    with pytest.raises(ValueError, match=f"--data {data}: .*{message}"):
        check(configure(data=str(data), **changes))


def test_a_model_that_is_none_is_named(configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # else it knocks for 20 s where there is none
    with pytest.raises(ValueError, match=r"--model .*: the folder does not hold a model .*save_pretrained"):
        check(configure(model=str(tmp_path)))
    with pytest.raises(ValueError, match="--model no/such: no such folder here, and the hub lacks it"):
        check(configure(model="no/such"))


def test_a_model_that_the_hub_lacks_is_named_although_its_texts_are_prepared(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = tokenized(configure()).folder
    monkeypatch.setattr("gaudi_tune.data.text.prepare_once", lambda *_: prepared)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert check(configure())
    with pytest.raises(ValueError, match="--model no/such: no such folder here, and the hub lacks it"):
        check(configure(model="no/such"))


def test_a_text_longer_than_the_model_has_positions_is_an_error_before_texts_are_padded_to_it(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaudi_tune.data.text._load_texts", lambda *_: pytest.fail("read"))
    with pytest.raises(ValueError, match=r"max_length must be at most the 64 positions of .*, but got 100000"):
        check(configure(max_length=100_000))


@pytest.mark.parametrize("family", ["bert", "distilbert", *COUNT_AFTER_PADDING])
def test_a_model_can_use_as_many_tokens_as_are_allowed_and_no_more(family: str) -> None:
    narrow = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    sizes: dict[str, Any] = {
        **narrow,
        "vocab_size": 32,
        "max_position_embeddings": 16,
        "pad_token_id": 1,
        "attention_window": 4,
        "entity_vocab_size": 4,  # luke's own has half a million
    }
    sizes |= {"languages": ["en"], "default_language": "en"} if family == "xmod" else {}
    config = AutoConfig.for_model(family, **sizes)
    allowed = positions(config)
    assert allowed is not None
    model = AutoModelForSequenceClassification.from_config(config).eval()

    def use(tokens: int) -> None:
        ids = torch.full((1, tokens), 5)
        model(input_ids=ids, attention_mask=torch.ones_like(ids))

    use(allowed)
    with pytest.raises((IndexError, RuntimeError)):
        use(allowed + 1)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("modernbert", {}),
        ("deberta-v2", {"position_biased_input": False, "relative_attention": True}),
        ("esm", {"position_embedding_type": "rotary"}),
        ("xlnet", {"d_model": 8, "n_layer": 1, "n_head": 2, "d_inner": 8}),
        ("umt5", {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}),
    ],
)
def test_a_model_without_a_limit_has_none(family: str, changes: dict[str, Any]) -> None:
    narrow = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    sizes = {
        "vocab_size": 32,
        "pad_token_id": 1,
        "eos_token_id": 5,
        **({} if "d_model" in changes else narrow),
        **changes,
    }
    sizes |= {} if family in ("xlnet", "umt5") else {"max_position_embeddings": 16}
    config = AutoConfig.for_model(family, **sizes)
    assert positions(config) is None
    ids = torch.full((1, 50), 5)
    AutoModelForSequenceClassification.from_config(config).eval()(input_ids=ids, attention_mask=torch.ones_like(ids))


def test_hyperparameters_out_of_bounds_are_named_together(configure: Configure) -> None:
    with pytest.raises(ValueError, match=r"lr must be above 0, but got 0.0; dropout must be .* below 1, but got 1.0"):
        configure(lr=0.0, dropout=1.0)
