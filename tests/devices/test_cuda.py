"""What a GPU is told to do, as far as a machine without one can see it. Nothing here has run on a GPU."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch

from gaudi_tune.devices.cpu import CPU
from gaudi_tune.devices.cuda import CUDA
from gaudi_tune.devices.worker_side import OptimizerName
from gaudi_tune.training.fresh_start import fresh_start


@pytest.mark.parametrize(
    ("name", "arguments"), [("sgd", {"momentum": 0.9, "nesterov": True}), ("adamw", {}), ("rmsprop", {"momentum": 0.9})]
)
def test_fused_optimizers_compute_the_same(name: OptimizerName, arguments: dict[str, Any]) -> None:
    """torch's fused kernels also run on a CPU."""
    trained = []
    for device in (CPU, CUDA):
        torch.manual_seed(0)
        weights = [torch.nn.Parameter(torch.randn(3, 4)) for _ in range(3)]
        optimizer = device.optimizer_class(name)(weights, lr=0.1, weight_decay=0.01, **arguments)
        for _ in range(5):
            for weight in weights:
                weight.grad = weight.detach() ** 2
            optimizer.step()
        trained.append(weights)
    assert bool(optimizer.param_groups[0].get("fused")) is (name != "rmsprop")
    torch.testing.assert_close(*trained, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("tf32", [False, True])
def test_settings_choose_the_algorithms_until_the_next_trial(tf32: bool) -> None:
    try:
        CUDA.choose_algorithms(tf32=tf32, benchmark=True)
        assert torch.backends.cuda.matmul.allow_tf32 is torch.backends.cudnn.allow_tf32 is tf32
        assert torch.backends.cudnn.benchmark
    finally:
        torch.backends.cudnn.allow_tf32 = True
        fresh_start(0)
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cudnn.benchmark


@pytest.mark.parametrize(
    ("message", "full"),
    [
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True),
        ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", True),
        ("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", True),
        ("CUDA error: out of memory", True),
        ("NCCL Error 1: unhandled cuda error\nLast error:\nCuda failure 2 'out of memory'", True),
        ("NCCL Error 1: unhandled cuda error\nLast error:\nFailed to CUDA calloc async 608 bytes", True),
        ("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR", False),
        ("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED", False),
        ("CUDA error: device-side assert triggered", False),
    ],
)
def test_libraries_that_lack_memory_are_understood(message: str, full: bool) -> None:
    assert CUDA.is_out_of_memory(RuntimeError(message)) is full
    assert not CUDA.is_out_of_memory(ValueError(message))
    assert CUDA.is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory."))


@pytest.mark.parametrize("has_it", [False, True])
def test_bfloat16_is_the_default_where_the_card_has_it(has_it: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def is_supported(including_emulation: bool = True) -> bool:
        asked.append(including_emulation)
        return has_it

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_supported)
    contexts = [CUDA.autocast(precision) for precision in ("auto", "bf16", "off")]
    assert [not isinstance(context, nullcontext) for context in contexts] == [has_it, True, False]
    assert asked == [False]
