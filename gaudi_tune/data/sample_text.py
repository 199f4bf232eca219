"""Text for the sample recipes: real English sentences from the docstrings of installed libraries.

The label of a sentence is the library that it comes from. There are five classes, like Yelp's five stars. Sentences are
read from source files, without importing them.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from gaudi_tune.base.node_cache import prepare_once

LIBRARIES = {
    "sklearn": "scikit-learn",
    "pandas": "pandas",
    "sqlalchemy": "sqlalchemy",
    "matplotlib": "matplotlib",
    "networkx": "networkx",
}
"""Package and distribution of the five libraries, which the extra ``recipes`` installs."""
SENTENCES_PER_LIBRARY = {"train": 400, "validation": 200, "test": 400}
"""Few to train on, so that an epoch takes seconds; as many to test on, where one sentence is 0.05 % of all, so that a
lead of a few per cent is told from chance."""
VOCABULARY_SIZE = 3000
FORMAT = 2
"""Version of the content for the same libraries."""


def sample_text() -> Path:
    """Return a folder with ``train.jsonl``, ``validation.jsonl`` and ``test.jsonl`` (keys ``text`` and ``label``).

    It is made once per node.
    """
    versions = {name: importlib.metadata.version(name) for name in LIBRARIES.values()}
    return prepare_once("docstring-sentences", {"sizes": SENTENCES_PER_LIBRARY, "versions": versions}, _write_sentences)


def sample_bert(sentences: Path) -> Path:
    """Return a folder with a WordPiece tokenizer, trained on the training split, and an untrained BERT of 2 layers."""
    return prepare_once(
        "small-bert", {"format": FORMAT, "sentences": sentences.name}, lambda folder: _write_bert(folder, sentences)
    )


def _write_sentences(folder: Path) -> None:
    splits: dict[str, list[str]] = {split: [] for split in SENTENCES_PER_LIBRARY}
    used_sentences: set[str] = set()
    for library in LIBRARIES:
        new_sentences = {s for s in sentences_of(library) if s.lower() not in used_sentences}
        used_sentences |= {s.lower() for s in new_sentences}
        sentences = iter(sorted(new_sentences, key=hash_of))
        for split, count in SENTENCES_PER_LIBRARY.items():
            splits[split] += [json.dumps({"text": text, "label": library}) for text in islice(sentences, count)]
    for split, lines in splits.items():
        # Lines are sorted by their hashes, so that the first n of them are a fair sample of all classes.
        (folder / f"{split}.jsonl").write_text("\n".join(sorted(lines, key=hash_of)) + "\n", encoding="utf-8")


def _write_bert(folder: Path, sentences: Path) -> None:
    import torch
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertModel, BertTokenizerFast
    from transformers.utils import logging

    lines = (sentences / "train.jsonl").read_text(encoding="utf-8").splitlines()
    wordpiece = BertWordPieceTokenizer(lowercase=True)
    wordpiece.train_from_iterator(
        (json.loads(line)["text"] for line in lines), vocab_size=VOCABULARY_SIZE, show_progress=False
    )
    wordpiece.save_model(str(folder))
    tokenizer = BertTokenizerFast.from_pretrained(folder, model_max_length=64)
    tokenizer.save_pretrained(folder)
    logging.disable_progress_bar()
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=64,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertModel(config).save_pretrained(folder)


def sentences_of(library: str) -> Iterator[str]:
    """Yield the sentences of the prose in a library's docstrings."""
    for docstring in docstrings_of(library):
        for paragraph in re.split(r"\n\s*\n", docstring):
            text = " ".join(paragraph.split())
            if any(mark in text for mark in (">>>", "::", "---", "===", "```")):
                continue  # code, tables and headings
            for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z])", text):
                if 8 <= len(sentence.split()) <= 40 and sentence[0].isupper() and sentence.endswith("."):
                    yield sentence


def docstrings_of(library: str) -> Iterator[str]:
    """Yield the docstrings in a library's source files."""
    spec = importlib.util.find_spec(library)
    assert spec is not None, f"{library} must be installed (the extra recipes)"
    root = Path(str(spec.origin)).parent
    for file in sorted(root.rglob("*.py")):
        if "tests" in file.relative_to(root).parts:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield ast.get_docstring(node) or ""


def hash_of(text: str) -> int:
    """Return a number that is the same for the same text, to sort by."""
    return int.from_bytes(hashlib.sha1(text.encode(), usedforsecurity=False).digest()[:8], "big")
