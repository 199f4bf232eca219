"""ResNet-50 from scratch on ImageNet: the recipe of Intel's GPU Migration Toolkit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from gaudi_tune.recipes.schedules import ScheduleKind
from trainables.resnet import ResNetConfig, check_resnet, train_resnet

RATE = 5600
"""Images of 224 pixels a second that a Gaudi 2 trains in Intel's MLPerf runs. This recipe's source has no rate."""
PUBLISHED_EPOCHS = 90
PUBLISHED_RATES = {0: 0.1, 1: 0.275, 2: 0.45, 3: 0.625, 4: 0.8, 30: 0.08, 60: 0.008, 80: 0.0008}
"""Learning rates, each from an epoch on, of 90 epochs with a batch of 256 per device."""
PEAK = max(PUBLISHED_RATES.values())
PUBLISHED_TABLE = tuple((epoch / PUBLISHED_EPOCHS, rate / PEAK) for epoch, rate in PUBLISHED_RATES.items())
"""The same as shares of the budget and of the peak, so that they fit other budgets and other learning rates."""


@dataclass(frozen=True, kw_only=True)
class ResNet50ImageNetConfig(ResNetConfig):
    """Hyperparameters and settings of one trial. The defaults are those of the published recipe."""

    published_rates: ClassVar[tuple[tuple[float, float], ...]] = PUBLISHED_TABLE

    label_smoothing: float = field()
    """Share of each label that is spread evenly over all classes, in the training loss only. 0 means none."""
    data: str = "ILSVRC2012"
    """The folder of ImageNet 2012, ``train/<wnid>`` and ``val/<wnid>``, or any folder of images with such splits."""
    schedule: ScheduleKind = "published"
    """How the learning rate falls from its peak. ``published`` rises over 4 of 90 epochs and falls to a tenth at 30, 60
    and 80; it is stretched to other budgets. It has its own warm-up, and ``warmup`` comes on top of it."""
    micro_batch: int = 256
    """Most samples that a worker trains on at once. The default is the published batch of one device. 0: no limit."""
    loader_workers: int | Literal["auto"] = 8
    """Processes per worker that load batches. 0: the worker loads them itself."""
    gpu_migration: bool = False
    """Whether habana runs code written for ``cuda`` (PT_HPU_GPU_MIGRATION). This project's own code does not need
    it. With several HPUs a trial it is untried: Ray then takes them for GPUs when it makes a model parallel."""
    fp16_to_bf16: bool = False
    """Whether GPU migration turns fp16 autocast into bf16 (PT_HPU_CONVERT_FP16_TO_BF16_FOR_MIGRATION)."""

    def rules(self) -> dict[str, bool]:
        """Return each rule in words, and whether the values keep it."""
        return super().rules() | {"fp16_to_bf16 goes with gpu_migration": self.gpu_migration or not self.fp16_to_bf16}

    def worker_environment(self) -> dict[str, str]:
        """Return the variables of habana's switches, which it reads when it is imported."""
        switches = {
            "PT_HPU_GPU_MIGRATION": self.gpu_migration,
            "PT_HPU_CONVERT_FP16_TO_BF16_FOR_MIGRATION": self.fp16_to_bf16,
        }
        return super().worker_environment() | {name: "1" for name, enabled in switches.items() if enabled}


def train_loop(config: dict[str, Any]) -> None:
    """Train one trial, as an ordinary Ray Train loop. ``config`` has the fields of :class:`ResNet50ImageNetConfig`."""
    train_resnet(ResNet50ImageNetConfig.from_dict(config))


def check(config: ResNet50ImageNetConfig) -> list[str]:
    """Check that data and weights can be used, and return lines that describe them.

    Raises:
        ValueError: The data, the weights or habana's switches cannot be used; the message says why, and what to do.
    """
    from gaudi_tune.devices.gaudi_node import has_habana

    habana_settings = [name for name in ("gpu_migration", "fp16_to_bf16") if getattr(config, name)]
    if habana_settings and not has_habana():
        raise ValueError(
            f"--set {habana_settings[0]}=true: this setting needs habana_frameworks, which is not installed; leave it "
            f"out"
        )
    facts = check_resnet(config)
    if config.architecture == "resnet50" and config.image_size == 224 and config.epochs:
        from gaudi_tune.data.image_index import image_index

        hours = config.epochs * len(image_index(config).files("train", config)[1]) / RATE / 3600
        facts.append(f"time: a whole trial takes {hours:.1f} HPU-hours at the {RATE} images/s of Intel's MLPerf runs")
    return facts
