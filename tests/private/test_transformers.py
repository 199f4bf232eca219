"""What this project knows of how evaluate imports transformers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gaudi_tune.define.options import PROJECT_ROOT

IN_A_NEW_PROCESS = """
import sys
from gaudi_tune.private.transformers import PIPELINES, import_evaluate
evaluate = import_evaluate()
assert PIPELINES not in sys.modules, "evaluate has imported them all the same"
assert issubclass(evaluate.Metric, object) and evaluate.MetricInfo
evaluators = sys.modules["evaluate.evaluator"]  # the package hides it behind a function of that name
assert evaluators.TRANSFORMERS_AVAILABLE is False, "evaluate no longer asks for transformers' pipelines"
import transformers.pipelines
assert transformers.pipelines.pipeline, "they cannot be imported later"
assert import_evaluate() is evaluate
"""


@pytest.mark.processes
def test_evaluate_is_imported_without_pipelines_which_can_be_imported_later() -> None:
    command = [sys.executable, "-c", IN_A_NEW_PROCESS]
    done = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
