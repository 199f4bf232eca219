"""What padded lengths and micro-batches cost and save in BERT's published sweep, on a stand-in HPU.

The network has the 12 layers of BERT-base, so that tracing it takes as long, but is narrow, and texts have a quarter of
their tokens. For each way, trains two epochs with each batch size of the space, of which the second compiles nothing.
Prints ``tracing_s`` of all graphs, which a group does once, in seconds of CPU; and the seconds of training and
evaluation in ``--epochs`` epochs, a group's share of the sweep: ``by_the_clock`` of the stand-in, which computes on the
host (seconds of CPU, too), and ``by_tokens``, if a step of 8 texts of full length took ``--step-ms`` and all others in
proportion to their tokens (an evaluated token a third of a trained one). Each ``ratio`` is the sum of tracing and
training over training with one length, the first way.

    HABANA_VISIBLE_MODULES=0 PYTHONPATH=tests/stand_in python -m tests.tools.benchmarks.lengths yelp.csv
"""

from __future__ import annotations

import argparse
import atexit
import csv
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

BATCHES = (8, 16, 32)
TEXTS, LONGEST = 1000, 128
EVAL_BATCH = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path, help="a CSV file with a column text, of 2,000 rows or more")
    parser.add_argument("--step-ms", type=float, default=20)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--ways", nargs="*", default=["1 length", "1 length, passes of 8", "2 lengths", "6 lengths"])
    given = parser.parse_args()
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)  # after the device is released
    os.environ |= {"HABANA_STAND_IN_DIR": folder, "GAUDI_TUNE_DEVICE": "hpu", "HLS_MODULE_ID": "0"}
    base: dict[str, float] = {}
    for way in given.ways:
        tracing_s, epoch_s, steps = measured(given.texts, int(way[0]), 8 if "passes" in way else 0)
        found = {"by_the_clock": given.epochs * epoch_s, "by_tokens": given.epochs * steps * given.step_ms / 1e3}
        base = base or found
        ratios = {f"ratio_{name}": round((tracing_s + seconds) / base[name], 2) for name, seconds in found.items()}
        seconds = {name: round(value, 1) for name, value in found.items()}
        print(way, json.dumps({"tracing_s": round(tracing_s, 1), **seconds, **ratios}), flush=True)


def measured(file: Path, count: int, micro_batch: int) -> tuple[float, float, float]:
    """Return the seconds of tracing, and of an epoch: in seconds, and in steps of 8 texts of full length."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    from gaudi_tune.recipes.loading import TrainSampler, eval_batches
    from gaudi_tune.recipes.loop import Task, train
    from gaudi_tune.recipes.training_config import TrainingConfig
    from gaudi_tune.training.fresh_start import fresh_start
    from gaudi_tune.training.session import open_session
    from tests.helpers.sessions import Collector

    torch._dynamo.reset()
    train_lengths, val_lengths = lengths_of(file)
    train_data, val_data = (texts_of(lengths, train_lengths, count) for lengths in (train_lengths, val_lengths))
    tracing_s, epoch_s, steps = 0.0, [], []
    for batch in BATCHES:
        config = TrainingConfig(
            epochs=2, lr=1e-3, batch_size=batch, weight_decay=0.0, micro_batch=micro_batch, eval_batch=EVAL_BATCH
        )
        fresh_start(1)
        described = BertConfig(
            vocab_size=100, hidden_size=48, num_hidden_layers=12, num_attention_heads=1, intermediate_size=96,
            max_position_embeddings=LONGEST, num_labels=5, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        task = Task(
            model=BertForSequenceClassification(described),
            forward=lambda model, batch: (
                model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
            ),
            train_data=train_data,
            val_data=val_data,
        )
        reported_at = [time.process_time()]

        class Timed(Collector):
            def report(self, *reported: Any, at: list[float] = reported_at) -> None:
                at.append(time.process_time())

        with open_session(Timed()):
            train(task, config)
        first_s, second_s = np.diff(reported_at)
        tracing_s += first_s - second_s
        epoch_s.append(second_s)
        trained = TrainSampler(TEXTS, config, 0, 1, train_data.padded_to)
        evaluated = eval_batches(TEXTS, 0, 1, EVAL_BATCH, val_data.padded_to)
        tokens = sum(len(part.indices) * (part.length or LONGEST) for part in trained)
        tokens += sum(EVAL_BATCH * (part.length or LONGEST) for part in evaluated) // 3
        steps.append(tokens / (8 * LONGEST))
    return tracing_s, float(np.mean(epoch_s)), float(np.mean(steps))


def lengths_of(file: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the lengths of the first texts, and of as many others: a quarter of 1.3 tokens a word."""
    with file.open() as rows:
        words = np.array([len(row["text"].split()) for row in csv.DictReader(rows)][: 2 * TEXTS])
    lengths = np.clip(np.ceil(1.3 * words / 4).astype(int) + 2, 3, LONGEST)
    return lengths[:TEXTS], lengths[TEXTS:]


def texts_of(lengths: Any, of_training: Any, count: int) -> Any:
    import torch

    from gaudi_tune.data.tokenized_texts import best_lengths, padded

    class Texts(torch.utils.data.Dataset[Any]):
        augments = False
        padded_to = None if count == 1 else padded(lengths, [*best_lengths(of_training, count)[:-1], LONGEST])

        def __len__(self) -> int:
            return len(lengths)

        def __getitems__(self, indices: list[int], length: int = LONGEST) -> dict[str, Any]:
            mask = torch.from_numpy((np.arange(length)[None, :] < lengths[indices, None]).astype(np.int64))
            return {"input_ids": mask, "attention_mask": mask, "labels": torch.tensor(indices) % 5}

    return Texts()


if __name__ == "__main__":
    main()
