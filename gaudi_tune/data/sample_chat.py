"""A conversation data set and a small language model for the sample recipe, from docstrings of installed libraries.

The model has read sentences of the docstrings' prose. The conversations are in another style: what is said of a
parameter. All texts are read from source files, without importing them.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from gaudi_tune.base.node_cache import prepare_once
from gaudi_tune.data.sample_text import LIBRARIES, docstrings_of, hash_of, sentences_of

FORMAT = 1
"""Version of the content for the same libraries."""
SECTION = re.compile(r"^Parameters\n-+\n(.*?)(?=^\S[^\n]*\n-+\n|\Z)", re.MULTILINE | re.DOTALL)
"""The section of a docstring in NumPy's style that describes parameters."""
PARAMETER = re.compile(r"^(\w+) : ([^\n]+)\n((?:    [^\n]*\n?|\n)+)", re.MULTILINE)
"""A parameter there: its name, its type and default, and what it is."""
CONVERSATIONS = {"train": 960, "validation": 240, "test": 600}
VOCABULARY_SIZE = 1500
CONTEXT = 64
PRETRAINING_STEPS, PRETRAINING_BATCH, PRETRAINING_LR = 400, 32, 5e-3
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def sample_chat() -> Path:
    """Return a folder with ``train.jsonl``, ``validation.jsonl`` and ``test.jsonl`` (``instruction`` and ``output``).

    It is made once per node.
    """
    return prepare_once("docstring-parameters", {**_versions(), "sizes": CONVERSATIONS}, _write_conversations)


def sample_llm() -> Path:
    """Return a folder with a tokenizer and a Llama of two layers, which are trained once per node, in about a
    minute."""
    return prepare_once("small-llama", {**_versions(), "steps": PRETRAINING_STEPS}, _write_model)


def _versions() -> dict[str, Any]:
    return {"format": FORMAT, "versions": {name: importlib.metadata.version(name) for name in LIBRARIES.values()}}


def _write_conversations(folder: Path) -> None:
    rows = {(name, answer): (library, kind) for library, name, kind, answer in _parameters()}
    order = iter(sorted(rows, key=lambda row: hash_of(" ".join(row))))
    for split, count in CONVERSATIONS.items():
        lines = []
        for name, answer in islice(order, count):
            library, kind = rows[name, answer]
            lines.append(json.dumps({"instruction": f"What is {name} in {library}?", "output": f"{kind}. {answer}"}))
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _parameters() -> Iterator[tuple[str, str, str, str]]:
    """Yield library, name, type and the first sentence of the description of each parameter."""
    for library in LIBRARIES:
        for docstring in docstrings_of(library):
            section = SECTION.search(docstring)
            for name, kind, body in PARAMETER.findall(section[1]) if section else ():
                sentence = re.split(r"(?<=[.])\s", " ".join(body.split("\n\n")[0].split()))[0]
                if 4 <= len(sentence.split()) <= 20 and sentence.endswith(".") and len(kind) < 50:
                    yield library, name, kind.strip(), sentence


def _write_model(folder: Path) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    sentences = sorted({s for library in LIBRARIES for s in sentences_of(library)}, key=hash_of)
    tokenizer = _tokenizer(sentences)
    tokenizer.save_pretrained(folder)
    ids = [token for text in tokenizer([f"{s}<|end|>" for s in sentences])["input_ids"] for token in text]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=len(tokenizer),
                hidden_size=96,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                intermediate_size=256,
                max_position_embeddings=256,
                tie_word_embeddings=True,
                pad_token_id=tokenizer.pad_token_id,
                bos_token_id=None,
                eos_token_id=tokenizer.eos_token_id,
            )
        )
        _pretrain(model, torch.tensor(ids))
    model.save_pretrained(folder)


def _tokenizer(sentences: list[str]) -> Any:
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    special = ["<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
    bytes_pairs = ByteLevelBPETokenizer()
    bytes_pairs.train_from_iterator(sentences, VOCABULARY_SIZE, special_tokens=special, show_progress=False)
    return PreTrainedTokenizerFast(
        tokenizer_object=bytes_pairs._tokenizer,  # noqa: SLF001
        pad_token="<|pad|>",  # noqa: S106
        eos_token="<|end|>",  # noqa: S106
        chat_template=CHAT_TEMPLATE,
    )


def _pretrain(model: Any, ids: Any) -> None:
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), PRETRAINING_LR, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, PRETRAINING_LR, PRETRAINING_STEPS, pct_start=0.05)
    rows = ids[: len(ids) // CONTEXT * CONTEXT].view(-1, CONTEXT)
    for _ in range(PRETRAINING_STEPS):
        batch = rows[torch.randint(len(rows), (PRETRAINING_BATCH,))]
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
