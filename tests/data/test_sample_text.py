import json
from collections import Counter
from typing import Any

from gaudi_tune.data.sample_text import LIBRARIES, SENTENCES_PER_LIBRARY, sample_text


def rows(split: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (sample_text() / f"{split}.jsonl").read_text().splitlines()]


def test_the_sentences_are_real_and_as_many_of_each_library() -> None:
    for split, count in SENTENCES_PER_LIBRARY.items():
        assert Counter(row["label"] for row in rows(split)) == dict.fromkeys(LIBRARIES, count)
        assert all(len(row["text"].split()) >= 8 and row["text"].endswith(".") for row in rows(split))


def test_no_sentence_comes_twice_nor_in_two_splits() -> None:
    texts = [row["text"].lower() for split in SENTENCES_PER_LIBRARY for row in rows(split)]
    assert len(set(texts)) == len(texts)
