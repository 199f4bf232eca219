"""Ray Train's set-up of torch. A module by itself: it imports torch, and the rest of Ray Train does not."""

from __future__ import annotations

# TorchConfig is public and names its backend; to do something before or after that backend one must inherit from it.
from ray.train.torch.config import _TorchBackend as TorchBackend

__all__ = ["TorchBackend"]
