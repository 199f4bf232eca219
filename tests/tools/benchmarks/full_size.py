"""What the shared training loop gives of a device: the networks of the five recipes at their full size.

Random weights, random data in memory, bfloat16. Each network is trained in turn by the shared loop, by a loop written
by hand with a DataLoader, by that loop with batches that are on the device already, and by one as one would write it
for the card: on the device already, images with channels last, fused optimizers, TF32, the fastest of cuDNN's
algorithms and, with ``--compiled``, compiled, which takes its time before the first figure. Prints a line for each
network as it goes: samples a second, milliseconds of CPU time of the training thread a step, the device's utilisation
in percent (NVML; null where there is none), ``ratio``, the shared loop's speed over that of the loop by hand, and
``ratio_card``, over that of the loop for the card. Prints, last, a JSON object with all of them. ``--small`` takes
small networks, for a try on a CPU.

    python -m tests.tools.benchmarks.full_size [--small] [--compiled] [--seconds 20] [network ...]
"""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain, repeat
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.utils.data import DataLoader, Dataset

from gaudi_tune.data.images import preparation
from gaudi_tune.data.pretrained import RANDOM
from gaudi_tune.devices.find import DEVICE_TYPES, worker_device
from gaudi_tune.recipes import loop
from gaudi_tune.recipes.loading import Batch
from gaudi_tune.recipes.loop import train
from gaudi_tune.recipes.task import Task
from gaudi_tune.recipes.training_config import TrainingConfig
from gaudi_tune.training.fresh_start import fresh_start
from gaudi_tune.training.session import open_session

ROUNDS = 4
"""Of each loop; the first is left out, for it fills caches."""
CLASSES = 10


class Size(NamedTuple):
    recipe: str
    batch: int
    side: int
    """Pixels of an image's side, or tokens of a text."""
    settings: dict[str, Any]


FULL = {
    "bert 8 x 512": Size("bert", 8, 512, {}),
    "bert 32 x 128": Size("bert", 32, 128, {}),
    "resnet18 64 x 64²": Size("resnet18", 64, 64, {}),
    "resnet50 32 x 224²": Size("resnet50", 32, 224, {"model": RANDOM}),
    "resnet50_imagenet 256 x 224²": Size("resnet50_imagenet", 256, 224, {}),
    "vit 256 x 160²": Size("vit", 256, 160, {"model": RANDOM, "size": "B/16"}),
}
QUARTER = {"model": RANDOM, "architecture": "resnet50-quarter"}
SMALL = {
    "bert 4 x 16": Size("bert", 4, 16, {"layers": 2}),
    "resnet18 8 x 32²": Size("resnet18", 8, 32, {}),
    "resnet50 8 x 32²": Size("resnet50", 8, 32, QUARTER),
    "resnet50_imagenet 8 x 32²": Size("resnet50_imagenet", 8, 32, QUARTER),
    "vit 8 x 32²": Size("vit", 8, 32, {"model": RANDOM, "size": "sample"}),
}


class Memory(Dataset[Any]):
    """Samples that are in memory."""

    augments = False

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return len(self.batch["labels"])

    def __getitems__(self, indices: list[int]) -> Batch:
        return {name: tensor[indices] for name, tensor in self.batch.items()}


def samples_of(size: Size, count: int) -> Memory:
    labels = torch.randint(CLASSES, (count,))
    if size.recipe == "bert":
        tokens = torch.randint(1000, 28_000, (count, size.side))
        return Memory({"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels})
    images = torch.randint(256, (count, 3, size.side, size.side), dtype=torch.uint8)
    return Memory({"images": images, "labels": labels})


def network_of(size: Size, config: Any) -> nn.Module:
    """Return the network as the recipe makes it, but with random weights."""
    if size.recipe == "bert":
        from transformers import BertConfig, BertForSequenceClassification

        layers = size.settings.get("layers", 12)
        described = BertConfig(num_labels=CLASSES, num_hidden_layers=layers, hidden_dropout_prob=config.dropout)
        return BertForSequenceClassification(described)
    if size.recipe == "vit":
        from trainables.vit import network_of as describe
        from trainables.vit_network import build_vit

        return build_vit(config.model, config.size, describe(config), CLASSES)
    from trainables.resnet_network import build_resnet

    return build_resnet(config.architecture, RANDOM, CLASSES)


def config_of(size: Size, steps: int) -> TrainingConfig:
    experiment = importlib.import_module(f"experiments.tune_{size.recipe}").EXPERIMENT
    settings = {name: value for name, value in size.settings.items() if name != "layers"}
    length = {"max_length": size.side} if size.recipe == "bert" else {"image_size": size.side}
    own = {"batch_size": size.batch, "lr": 1e-3, "mixed_precision": "bf16", "loader_workers": 0, "seed": 1}
    budget = {"steps": ROUNDS * steps, "eval_every": steps}
    known = set(experiment.config_class.field_names())
    values = {**experiment.baseline, **length, **own, **settings, **budget}
    config: TrainingConfig = experiment.config_class.from_dict({k: v for k, v in values.items() if k in known})
    return config


def task_of(size: Size, config: Any) -> Task:
    fresh_start(1)
    is_text = size.recipe == "bert"

    def forward(model: nn.Module, batch: Batch) -> torch.Tensor:
        if is_text:
            return model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        return model(batch["images"])

    of_images = DEVICE_TYPES[worker_device().type].channels_last and not is_text
    layout = torch.channels_last if of_images else torch.contiguous_format
    return Task(
        model=network_of(size, config).to(memory_format=layout),
        forward=forward,
        prepare=None if is_text else preparation(config, layout),
        train_data=samples_of(size, max(2 * size.batch, 64)),
        val_data=samples_of(size, 8),
    )


class ByHand:
    """A loop written for one network and one device."""

    def __init__(
        self, task: Task, config: TrainingConfig, *, resident: bool, for_card: bool = False, compiled: bool = False
    ) -> None:
        self.task, self.config, self.device = task, config, worker_device()
        self.prepare: Callable[[Batch], Batch] = task.prepare or (lambda batch: batch)
        self.model = copy.deepcopy(task.model).to(self.device)
        self.for_card = for_card
        if for_card and task.prepare is not None:
            self.model = self.model.to(memory_format=torch.channels_last)
            self.prepare = preparation(config, torch.channels_last)  # type: ignore[arg-type]
        self.optimizer = config.make_optimizer(self.model, self.device)
        if compiled:
            self.model.compile(dynamic=False)
        pins = DEVICE_TYPES[self.device.type].pins_memory
        loader: DataLoader[Any] = DataLoader(
            task.train_data, config.batch_size, shuffle=True, drop_last=True, collate_fn=dict, pin_memory=pins
        )
        self.batches: Iterator[Batch] = chain.from_iterable(repeat(loader))
        if resident:
            self.batches = iter(repeat(self._moved(next(self.batches))))

    def _moved(self, batch: Batch) -> Batch:
        return {name: tensor.to(self.device, non_blocking=True) for name, tensor in batch.items()}

    def train(self, steps: int) -> None:
        DEVICE_TYPES[self.device.type].choose_algorithms(tf32=self.for_card, benchmark=self.for_card)
        self.model.train()
        for _ in range(steps):
            batch = self.prepare(self._moved(next(self.batches)))
            with torch.autocast(self.device.type, dtype=torch.bfloat16):
                logits = self.task.forward(self.model, batch)
            F.cross_entropy(logits.float(), batch["labels"]).backward()
            if self.config.clip_norm:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
            self.optimizer.step()
            self.optimizer.zero_grad()


class Figures:
    """What the rounds of each loop took. Speed is counted in ``unit``, of which a batch has so many."""

    def __init__(self, batch: int, steps: int, unit: str = "samples") -> None:
        self.batch, self.steps, self.speed = batch, steps, f"{unit}_per_s"
        self.rounds: dict[str, list[dict[str, float | None]]] = defaultdict(list)

    @contextmanager
    def measured(self, way: str) -> Iterator[None]:
        synchronize = DEVICE_TYPES[worker_device().type].synchronize
        synchronize()
        with utilisation() as readings:
            wall_s, cpu_s = time.perf_counter(), time.thread_time()
            yield
            cpu_s = time.thread_time() - cpu_s
            synchronize()
            wall_s = time.perf_counter() - wall_s
        figures = {
            self.speed: self.batch * self.steps / wall_s,
            "host_ms": 1e3 * cpu_s / self.steps,
            "utilisation": statistics.mean(readings) if readings else None,
        }
        self.rounds[way].append(figures)

    def medians(self) -> dict[str, Any]:
        """Return the medians of each loop, and the shared loop's speed over that of the loop by hand."""
        found: dict[str, Any] = {}
        for way, rounds in self.rounds.items():
            columns = {name: [figures[name] for figures in rounds[1:]] for name in rounds[0]}
            found[way] = {name: median(values) for name, values in columns.items()}
        speed = {way: figures[self.speed] for way, figures in found.items()}
        ratios = {"by_hand": "ratio", "for_card": "ratio_card"}
        return {**found, **{ratios[way]: round(speed["shared"] / speed[way], 3) for way in speed if way in ratios}}


def median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.median(known), 2) if known else None


@contextmanager
def utilisation() -> Iterator[list[float]]:
    """Hand out a list that gets the percentage of the time that the device was busy, each tenth of a second."""
    readings: list[float] = []
    ended = threading.Event()

    def read() -> None:
        with suppress(Exception):  # without NVML's Python package
            while not ended.wait(0.1):
                readings.append(float(torch.cuda.utilization()))

    thread = threading.Thread(target=read, daemon=True)
    if torch.cuda.is_available():
        thread.start()
    yield readings
    ended.set()
    if thread.ident is not None:
        thread.join()


class InTurn:
    """A session that runs the other loops after each round of the shared one."""

    folder = Path()

    def __init__(self, others: Mapping[str, Any], figures: Figures) -> None:
        self.others, self.figures = others, figures
        self.first: dict[str, Any] = {}

    def report(self, metrics: Mapping[str, Any], save: Callable[..., None] | None) -> None:
        self.first = self.first or dict(metrics)
        for way, other in self.others.items():
            with self.figures.measured(way):
                other.train(self.figures.steps)
        DEVICE_TYPES[worker_device().type].choose_algorithms(tf32=False, benchmark=False)  # as the shared loop chose

    def save_if_asked(self, save: Callable[..., None]) -> None:
        pass

    def get_checkpoint(self) -> None:
        return None


def steps_in(size: Size, seconds: float) -> int:
    """Return how many steps each round of each loop may have for all to take so many seconds."""
    config = config_of(size, 1)
    by_hand = ByHand(task_of(size, config), config, resident=True)
    by_hand.train(3)
    synchronize = DEVICE_TYPES[by_hand.device.type].synchronize
    synchronize()
    began = time.perf_counter()
    by_hand.train(3)
    synchronize()
    return max(3, min(200, int(seconds / (4 * ROUNDS) / ((time.perf_counter() - began) / 3))))


def compare(size: Size, seconds: float, *, compiled: bool) -> dict[str, Any]:
    """Train with the four loops, and return their figures."""
    figures = Figures(size.batch, steps_in(size, seconds))
    config = config_of(size, figures.steps)
    task = task_of(size, config)
    others = {
        "by_hand": ByHand(task, config, resident=False),
        "on_device": ByHand(task, config, resident=True),
        "for_card": ByHand(task, config, resident=True, for_card=True, compiled=compiled),
    }
    with in_turn(others, figures):
        train(task, config)
    return {"steps": figures.steps, **figures.medians()}


@contextmanager
def in_turn(others: Mapping[str, Any], figures: Figures) -> Iterator[InTurn]:
    """Measure each round of the shared loop inside the block, and after it one of each other loop."""
    session, train_round = InTurn(others, figures), loop._Trial.train_to_next_report

    def measured_round(trial: Any) -> Any:
        with figures.measured("shared"):
            return train_round(trial)

    with patch.object(loop._Trial, "train_to_next_report", measured_round), open_session(session):
        yield session


def print_results(**results: Any) -> None:
    """Print the device, the version of torch, and the results."""
    device = worker_device().type
    card = torch.cuda.get_device_name() if device == "cuda" else device
    print(json.dumps({"device": card, "torch": torch.__version__, **results}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--seconds", type=float, default=20, help="for each network, without its start")
    parser.add_argument("--compiled", action="store_true", help="the loop for the card compiles its network")
    parser.add_argument("networks", nargs="*", help="recipes; all by default")
    given = parser.parse_args()
    sizes = SMALL if given.small else FULL
    results = {}
    for name, size in sizes.items():
        if not given.networks or size.recipe in given.networks:
            results[name] = compare(size, given.seconds, compiled=given.compiled)
            print(name, json.dumps(results[name]), flush=True)
    print_results(networks=results)


if __name__ == "__main__":
    main()
