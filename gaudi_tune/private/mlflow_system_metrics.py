"""MLflow's monitor of GPUs. It has its own module, because workers on GPUs import it without the rest of MLflow's
client."""

from __future__ import annotations

# mlflow.enable_system_metrics_logging() is public, but monitors all GPUs of the node, and needs a run in this process.
from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor

__all__ = ["GPU_LOGGER", "OneGpuMonitor"]

GPU_LOGGER = GPUMonitor.__module__
"""A logger with a warning in each sample for each value that a GPU does not have."""


class OneGpuMonitor(GPUMonitor):
    """MLflow's monitor of GPUs, restricted to one GPU of the node. MLflow's own takes the time to read all of them."""

    def __init__(self, index: int) -> None:
        """Find the GPU.

        Args:
            index: The GPU's number in NVML, which orders GPUs by their PCI buses and ignores CUDA_VISIBLE_DEVICES.

        Raises:
            ImportError: nvidia-ml-py is not installed.
            IndexError: There is no such GPU.
            RuntimeError: There is no driver.
        """
        super().__init__()
        self._index, self.gpu_handles = index, [self.gpu_handles[index]]

    def sample(self) -> dict[str, float]:
        """Read the GPU once, and return the values under the GPU's number on the node."""
        self.collect_metrics()
        values: dict[str, float] = self.aggregate_metrics()
        self.clear_metrics()
        return {name.replace("gpu_0", f"gpu_{self._index}", 1): value for name, value in values.items()}
