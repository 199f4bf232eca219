"""What this project uses of cloudpickle that cloudpickle does not promise to keep."""

from __future__ import annotations

import cloudpickle as plain
import pytest
from ray import cloudpickle

from gaudi_tune.private.cloudpickle import forget_classes


@pytest.mark.parametrize("module", [cloudpickle, plain])
def test_a_class_that_was_sent_by_value_is_made_once_until_it_is_forgotten(module: object) -> None:
    script: dict[str, type] = {"__name__": "__main__"}
    exec("class Net:\n    made = 0", script)
    pickled = module.dumps(script["Net"])  # type: ignore[attr-defined]
    first = module.loads(pickled)  # type: ignore[attr-defined]
    assert module.loads(pickled) is first  # type: ignore[attr-defined]
    forget_classes()
    assert module.loads(pickled) is not first  # type: ignore[attr-defined]
