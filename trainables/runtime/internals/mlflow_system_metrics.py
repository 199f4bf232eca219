"""MLflow's monitor of GPUs. A module by itself: workers on GPUs import it, and nothing of the client."""

from __future__ import annotations

import re
from collections.abc import Sequence

# mlflow.enable_system_metrics_logging() is public, and knows only GPUs, all of the node's, in a run of this process.
from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor

__all__ = ["GPU_LOGGER", "SomeGpusMonitor"]

GPU_LOGGER = GPUMonitor.__module__
"""Logs a warning at each sample for each quantity that a GPU does not have."""


class SomeGpusMonitor(GPUMonitor):
    """MLflow's monitor for GPUs, for some of the node's. MLflow's own reads all, whose time each group would pay."""

    def __init__(self, indices: Sequence[int]) -> None:
        """Find the GPUs.

        Args:
            indices: As NVML counts them, that is in the order of their PCI buses, CUDA_VISIBLE_DEVICES or not.

        Raises:
            ImportError: nvidia-ml-py is not installed.
            RuntimeError: There is no driver.
        """
        super().__init__()
        self._indices = [index for index in indices if index < self.num_gpus]
        self.gpu_handles = [self.gpu_handles[index] for index in self._indices]

    def sample(self) -> dict[str, float]:
        """Read each GPU once, and return the values under the node's numbers of the GPUs."""
        self.collect_metrics()
        values: dict[str, float] = self.aggregate_metrics()
        self.clear_metrics()
        return {re.sub(r"^gpu_(\d+)", self._number_of_the_node, name): value for name, value in values.items()}

    def _number_of_the_node(self, found: re.Match[str]) -> str:
        return f"gpu_{self._indices[int(found[1])]}"
