"""What this project uses of cloudpickle that cloudpickle does not promise to keep."""

from __future__ import annotations

from typing import Any

import cloudpickle as plain
import pytest
from ray import cloudpickle

from gaudi_tune.private.cloudpickle import forget_classes


@pytest.mark.parametrize("module", [cloudpickle, plain])
def test_a_class_that_was_sent_by_value_is_made_once_until_it_is_forgotten(module: Any) -> None:
    script: dict[str, Any] = {"__name__": "__main__"}
    exec("class Net:\n    made = 0", script)
    pickled = module.dumps(script["Net"])
    first = module.loads(pickled)
    assert module.loads(pickled) is first
    forget_classes()
    assert module.loads(pickled) is not first
