import json
from collections import Counter
from typing import Any

import pytest

from gaudi_tune.data.sample_text import LIBRARIES, SENTENCES_PER_LIBRARY, sample_text

Rows = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """The rows of each split, which take many seconds to make."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GAUDI_TUNE_CACHE", str(tmp_path_factory.mktemp("cache")))
        lines = {split: (sample_text() / f"{split}.jsonl").read_text().splitlines() for split in SENTENCES_PER_LIBRARY}
    return {split: [json.loads(line) for line in lines[split]] for split in lines}


def test_the_sentences_are_real_and_as_many_of_each_library(rows: Rows) -> None:
    for split, count in SENTENCES_PER_LIBRARY.items():
        assert Counter(row["label"] for row in rows[split]) == dict.fromkeys(LIBRARIES, count)
        assert all(len(row["text"].split()) >= 8 and row["text"].endswith(".") for row in rows[split])


def test_no_sentence_comes_twice_nor_in_two_splits(rows: Rows) -> None:
    texts = [row["text"].lower() for split in rows for row in rows[split]]
    assert len(set(texts)) == len(texts)
