"""Trainers of other libraries in whole sweeps, with two stand-in HPUs a trial.

Transformers' Trainer stands on Accelerate, which the tool tries alone, too, and on four HPUs.
"""

from __future__ import annotations

import pytest

from tests.tools.conformance.__main__ import cases

pytestmark = [pytest.mark.workers, pytest.mark.own_ray]


@pytest.mark.parametrize("script", ["hf_trainer.py", "sft.py"])
def test_a_trainer_trains_on_two_hpus(script: str) -> None:
    (result,) = cases(None, f"a sweep of {script}, 2 HPUs")
    if result.result == "cannot run":
        pytest.skip(result.reason)
    assert result.result == "passed", result.reason
