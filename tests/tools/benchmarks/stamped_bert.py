"""BERT's train loop, which says in each report when it reported (``reported_at``, seconds since 1970)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

from gaudi_tune.recipes import loop
from gaudi_tune.training.session import report
from trainables import bert


def train_loop(config: dict[str, Any]) -> None:
    """Train a trial on the shared loop."""

    def stamped_report(metrics: Mapping[str, Any], **arguments: Any) -> None:
        report({**metrics, "reported_at": time.time()}, **arguments)

    with patch.object(loop, "report", stamped_report):
        bert.train_loop(config)
