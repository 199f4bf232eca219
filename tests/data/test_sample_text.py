import json
from collections import Counter
from typing import Any

from gaudi_tune.data.sample_text import LIBRARIES, sample_text


def rows(split: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (sample_text() / f"{split}.jsonl").read_text().splitlines()]


def test_the_sentences_are_many_real_and_of_five_libraries() -> None:
    everything = rows("train") + rows("test")
    assert len(everything) >= 2000
    counts = Counter(row["label"] for row in everything)
    assert set(counts) == set(LIBRARIES)
    assert max(counts.values()) - min(counts.values()) <= 0.1 * max(counts.values())
    assert all(len(row["text"].split()) >= 8 and row["text"].endswith(".") for row in everything)


def test_no_sentence_comes_twice_nor_in_both_splits() -> None:
    texts = [row["text"].lower() for row in rows("train") + rows("test")]
    assert len(set(texts)) == len(texts)


def test_about_a_fifth_is_for_validation() -> None:
    share = len(rows("test")) / (len(rows("train")) + len(rows("test")))
    assert 0.17 < share < 0.23
