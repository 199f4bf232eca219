"""What a language model's recipe gives of a device: LoRA on a Llama of 1.24 billion random weights, in bfloat16.

A short trial of ``trainables/llm.py`` loads the base from a file, and another one finds it kept. The second is timed
in turn with a loop of transformers and peft written by hand, on the same samples. Prints a JSON object as each part
comes, and all of them last:

- ``start_s``: from the begin of each trial until its first step, ``loads`` and ``keeps``;
- ``sums_s``: what comparing the bytes of the base took between the two;
- ``memory``: GB that the first trial took at its peak, and what the plan says (None where no memory is measured);
- tokens a second of both loops, and ``ratio``, the shared loop's over that of the loop by hand.

    python -m tests.tools.benchmarks.llm_size [--small] [--seconds 20]

``--small`` takes a small model, for a try on a CPU.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

from gaudi_tune.base import names
from gaudi_tune.data.chat import chat_data
from gaudi_tune.devices.find import DEVICE_TYPES, worker_device
from gaudi_tune.training import keep
from search_spaces.llm import BASELINE
from tests.helpers.sessions import reports_of
from tests.tools.benchmarks.full_size import ROUNDS, Figures, in_turn, print_results
from trainables.llm import train_loop
from trainables.llm_config import LlmConfig

END, WORDS = "<|end|>", 1000
SAMPLES = {"train": 64, "validation": 8}


def llama(small: bool) -> LlamaConfig:
    """Return the configuration of Llama 3.2 1B, or of a small one."""
    width, layers, inner, vocabulary, heads, keys = 2048, 16, 8192, 128256, 32, 8
    if small:
        width, layers, inner, vocabulary, heads, keys = 64, 2, 128, WORDS + 1, 4, 2
    return LlamaConfig(
        hidden_size=width, num_hidden_layers=layers, intermediate_size=inner, vocab_size=vocabulary,
        num_attention_heads=heads, num_key_value_heads=keys, tie_word_embeddings=True, max_position_embeddings=2048,
        bos_token_id=None, eos_token_id=WORDS,
    )  # fmt: skip


def write_source(folder: Path, small: bool, length: int) -> None:
    """Write a model with random weights, a tokenizer, and texts of exactly so many tokens, all of which are learned."""
    torch.set_default_dtype(torch.bfloat16)
    with worker_device():
        model = LlamaForCausalLM(llama(small))
    torch.set_default_dtype(torch.float32)
    model.save_pretrained(folder / "model")
    vocabulary = {f"w{number}": number for number in range(WORDS)} | {END: WORDS}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END).save_pretrained(folder / "model")
    words = random.Random(1)
    for split, count in SAMPLES.items():
        texts = (" ".join(f"w{words.randrange(WORDS)}" for _ in range(length - 1)) + " " for _ in range(count))
        (folder / f"{split}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


class ByHand:
    """LoRA with transformers and peft, as one would write it for this model."""

    def __init__(self, config: LlmConfig) -> None:
        self.device = worker_device()
        logging.set_verbosity_error()
        base = AutoModelForCausalLM.from_pretrained(config.model, dtype=torch.bfloat16).to(self.device)
        alpha = int(config.alpha_ratio * config.rank)
        self.model = get_peft_model(base, LoraConfig(r=config.rank, lora_alpha=alpha, target_modules="all-linear"))
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, config.lr, fused=self.device.type == "cuda")
        samples = chat_data(config).split("train", config)
        loader: DataLoader[Any] = DataLoader(samples, config.batch_size, shuffle=True, collate_fn=dict)
        self.batches = chain.from_iterable(repeat(loader))

    def train(self, steps: int) -> None:
        self.model.train()
        for _ in range(steps):
            batch = {name: tensor.to(self.device) for name, tensor in next(self.batches).items()}
            with torch.autocast(self.device.type, dtype=torch.bfloat16):
                loss = self.model(**batch, use_cache=False).loss
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()


def config_of(folder: Path, length: int, steps: int) -> dict[str, Any]:
    """Return the published configuration with PEFT's rank, for passes of 4 texts."""
    budget = {"steps": ROUNDS * steps, "eval_every": steps, "warmup": 0.0, "seed": 1, "loader_workers": 0}
    size = {"rank": 8, "batch_size": 4, "max_length": length, "padded_lengths": 1, "val_samples": 8, "eval_batch": 4}
    source = {"model": str(folder / "model"), "data": str(folder), "mixed_precision": "bf16"}
    return {**BASELINE, **budget, **size, **source}


def start_s(began: float, report: dict[str, Any]) -> float:
    """Return the seconds from the begin of a trial to its first step."""
    return round(report[names.FIRST_STEP_AT] - began, 2)


def measure(folder: Path, small: bool, seconds: float) -> dict[str, Any]:
    """Run the two trials, and print what each part gives."""
    length, device = 64 if small else 2048, DEVICE_TYPES[worker_device().type]
    results: dict[str, Any] = {}

    def note(**found: Any) -> None:
        results.update(found)
        print(json.dumps(found), flush=True)

    began = time.time()
    write_source(folder, small, length)
    given = config_of(folder, length, 3)
    config = LlmConfig.from_dict(given)
    data = chat_data(config)
    note(prepared_s=round(time.time() - began, 1))

    if device.measures_memory:
        device.free_cached_memory()
        device.reset_peak_memory()
    began = time.time()
    reports = reports_of(train_loop, given)
    starts = {"loads": start_s(began, reports[0])}
    need = config.memory(data, workers=1)
    peak = round(device.peak_memory_gb(), 2) if device.measures_memory else None
    note(memory={"peak_gb": peak, "plan_gb": round(need.total / 1e9, 2)})
    began = time.perf_counter()
    keep.forget_changed(lambda kind: False)
    note(sums_s=round(time.perf_counter() - began, 3))

    tokens = config.batch_size * length
    steps = max(3, int(seconds / (2 * ROUNDS) * reports[-1][names.TOKENS_PER_SECOND] / tokens))
    figures, by_hand = Figures(tokens, steps, "tokens"), ByHand(config)
    began = time.time()
    with in_turn({"by_hand": by_hand}, figures) as session:
        train_loop(config_of(folder, length, steps))
    note(start_s={**starts, "keeps": start_s(began, session.first)})
    note(steps=steps, **figures.medians())
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--seconds", type=float, default=20, help="for the rounds of both loops")
    given = parser.parse_args()
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder, patch.dict("os.environ", {"GAUDI_TUNE_CACHE": f"{folder}/cache"}):
        results = measure(Path(folder), given.small, given.seconds)
    print_results(**results)


if __name__ == "__main__":
    main()
