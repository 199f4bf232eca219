"""The configuration of a trial of a language model: its rules, and what it needs of a device's memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import Self

from gaudi_tune.data.configs import ChatConfig
from gaudi_tune.recipes.schedules import Schedule
from trainables.attention import AttentionConfig
from trainables.llm_memory import MemoryNeed, memory_need

if TYPE_CHECKING:
    from gaudi_tune.data.chat import ChatData


@dataclass(frozen=True, kw_only=True)
class LlmConfig(ChatConfig, AttentionConfig):
    """Hyperparameters and settings of one LoRA trial."""

    rank: int
    """Rank of the adapter's matrices."""
    alpha_ratio: float
    """LoRA's alpha, as a multiple of ``rank``: the factor by which the adapter's output is multiplied."""
    target: Literal["all", "attention", "mlp"]
    """The linear layers that get an adapter: all of them but the head, or those of attention or of the MLPs."""
    dropout: float
    """Dropout probability of an adapter's input."""
    decayed: Literal["all", "weights"] = "all"
    """What ``weight_decay`` acts on. Adapters have no norms and biases."""
    eval_batch: int = 8
    """Validation samples in one forward pass of a worker."""
    sharding: Literal["none", "full"] = "none"
    """Whether each worker of a trial has the whole model, or a part of it (full: torch's FSDP2)."""
    gradient_checkpointing: bool = False
    """Whether activations are computed again in the backward pass: a third more time, for much less memory."""
    device_gb: float = 0.0
    """Memory of a device, in 10^9 bytes: a trial that would need more is refused before the sweep begins. 0: the plan
    only says what a trial needs."""

    def make_schedule(self) -> Schedule:
        """Return the schedule, whose first step of the warm-up has a learning rate of 0, as in transformers."""
        return replace(super().make_schedule(), warmup_from_zero=True)

    def graph(self, workers: int) -> dict[str, Any]:
        """Return what the graphs of the model depend on."""
        shapes = {name: getattr(self, name) for name in ("rank", "target", "sharding", "gradient_checkpointing")}
        return super().graph(workers) | shapes

    def rules(self) -> dict[str, bool]:
        """Return each rule in words, and whether the values keep it."""
        return super().rules() | {
            "rank must be at least 1": self.rank >= 1,
            "alpha_ratio must be above 0 and finite": 0 < self.alpha_ratio < math.inf,
            "device_gb must not be negative": self.device_gb >= 0,
            "sharding=full excludes ema_decay, whose average would be whole": self.sharding == "none"
            or not self.ema_decay,
            "sharding=full excludes lazy_mode, which has no DTensor": self.sharding == "none"
            or self.lazy_mode is not True,
        }

    def largest(self, values: Callable[[str], Iterable[Any]], workers: int) -> Self:
        """Return a copy with the largest batch, the highest rank, and dropout and adapters on all layers if there are
        any."""
        values_of_largest: dict[str, Any] = {
            name: max([getattr(self, name), *values(name)]) for name in ("rank", "dropout")
        }
        target = "all" if "all" in values("target") else self.target
        return replace(super().largest(values, workers), target=target, **values_of_largest)

    def samples_at_once(self, workers: int) -> int:
        """Return the samples of a micro-batch."""
        share = math.ceil(self.batch_size / workers)
        return math.ceil(share / math.ceil(share / self.micro_batch)) if self.micro_batch else share

    def memory(self, data: ChatData, workers: int) -> MemoryNeed:
        """Return what a trial needs of its device's memory."""
        return memory_need(
            data.model,
            parameters=data.parameters,
            rank=self.rank,
            target=self.target,
            samples=self.samples_at_once(workers),
            length=data.most_tokens(self),
            dropout=self.dropout > 0,
            checkpointing=self.gradient_checkpointing,
            bytes_of_base=4 if self.mixed_precision == "off" else 2,
            shards=workers if self.sharding == "full" else 1,
        )

    def check_memory(self, need: MemoryNeed) -> None:
        """Check that a device has what a trial needs.

        Raises:
            ValueError: It has less.
        """
        if self.device_gb and need.total > self.device_gb * 1e9:
            raise ValueError(
                f"device_gb={self.device_gb:g}: a trial needs {need}; take a smaller --set micro_batch or max_length, "
                f"or gradient_checkpointing=true"
            )
