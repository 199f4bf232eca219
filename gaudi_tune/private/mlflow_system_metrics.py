"""MLflow's monitor of GPUs. A module by itself: workers on GPUs import it, and nothing of the client."""

from __future__ import annotations

# mlflow.enable_system_metrics_logging() is public, and knows only GPUs, all of the node's, in a run of this process.
from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor

__all__ = ["GPU_LOGGER", "OneGpuMonitor"]

GPU_LOGGER = GPUMonitor.__module__
"""Logs a warning at each sample for each quantity that a GPU does not have."""


class OneGpuMonitor(GPUMonitor):
    """MLflow's monitor for GPUs, for one of the node's. MLflow's own reads all, whose time each worker would pay."""

    def __init__(self, index: int) -> None:
        """Find the GPU.

        Args:
            index: As NVML counts them, that is in the order of their PCI buses, CUDA_VISIBLE_DEVICES or not.

        Raises:
            ImportError: nvidia-ml-py is not installed.
            IndexError: There is no such GPU.
            RuntimeError: There is no driver.
        """
        super().__init__()
        self._index, self.gpu_handles = index, [self.gpu_handles[index]]

    def sample(self) -> dict[str, float]:
        """Read the GPU once, and return the values under the node's number of it."""
        self.collect_metrics()
        values: dict[str, float] = self.aggregate_metrics()
        self.clear_metrics()
        return {name.replace("gpu_0", f"gpu_{self._index}", 1): value for name, value in values.items()}
