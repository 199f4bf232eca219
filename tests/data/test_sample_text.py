import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gaudi_tune.data.sample_text import LIBRARIES, SENTENCES_PER_LIBRARY, sample_text

Rows = dict[str, list[dict[str, Any]]]
SMALL = ("networkx",)


def rows_now() -> Rows:
    lines = {split: (sample_text() / f"{split}.jsonl").read_text().splitlines() for split in SENTENCES_PER_LIBRARY}
    return {split: [json.loads(line) for line in lines[split]] for split in lines}


@pytest.fixture(scope="module")
def rows() -> Rows:
    """The rows of each split, as the recipe has them: they take many seconds to make, once per node."""
    return rows_now()


def test_they_are_made_anew_as_they_were(rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the smallest library alone, which is faster: its sentences hardly depend on the others."""
    monkeypatch.setenv("GAUDI_TUNE_CACHE", str(tmp_path))
    for library in {*LIBRARIES} - {*SMALL}:
        monkeypatch.delitem(LIBRARIES, library)
    for split, made in rows_now().items():
        assert Counter(row["label"] for row in made) == dict.fromkeys(SMALL, SENTENCES_PER_LIBRARY[split])
        known = {(row["text"], row["label"]) for row in rows[split]}
        assert sum((row["text"], row["label"]) in known for row in made) > 0.95 * len(made)


def test_the_sentences_are_real_and_as_many_of_each_library(rows: Rows) -> None:
    for split, count in SENTENCES_PER_LIBRARY.items():
        assert Counter(row["label"] for row in rows[split]) == dict.fromkeys(LIBRARIES, count)
        assert all(len(row["text"].split()) >= 8 and row["text"].endswith(".") for row in rows[split])


def test_no_sentence_comes_twice_nor_in_two_splits(rows: Rows) -> None:
    texts = [row["text"].lower() for split in rows for row in rows[split]]
    assert len(set(texts)) == len(texts)
