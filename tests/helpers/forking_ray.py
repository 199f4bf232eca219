"""A Ray of the tests."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import ray

from gaudi_tune.base.process import temporary_environment
from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.on_ray.local_ray import ENVIRONMENT
from gaudi_tune.private.fork_server import ForkServer
from gaudi_tune.private.ray_core import lean_ray
from gaudi_tune.private.setup_worker import FORK_SERVER


@contextmanager
def forking_ray(cpus: int, modules: Sequence[str]) -> Iterator[None]:
    """Start a Ray as sweeps do, whose workers are copies of a process that has imported these modules, too."""
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in ENVIRONMENT.items():
            patch.setenv(variable, value)
        patch.setenv("PYTHONPATH", str(PROJECT_ROOT))  # workers import the loops in tests.helpers.loops
        fork_server = ForkServer(modules, {**os.environ, "OMP_NUM_THREADS": "1"})
        with temporary_environment({FORK_SERVER: fork_server.address}), lean_ray():
            ray.init("local", num_cpus=cpus, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        yield
        ray.shutdown()
        fork_server.end()
