"""The kernel of a notebook, as a browser sees it."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gaudi_tune.define.options import PROJECT_ROOT

WITHIN_S = 120.0


class Kernel:
    """A kernel, and what its cells have shown."""

    def __init__(self, client: Any) -> None:
        self.client, self.seen = client, list[Any]()

    def run(self, code: str) -> str:
        """Run a cell to its end."""
        return self.wait_for_end(self.start(code))

    def start(self, code: str) -> str:
        self.seen.clear()
        return str(self.client.execute(code, allow_stdin=False))

    def wait_for_end(self, cell: str) -> str:
        """Wait until a cell has ended, and return what it printed, or its error."""
        self.until(lambda m: m["content"].get("execution_state") == "idle" and m["parent_header"]["msg_id"] == cell)
        ours = [message for message in self.seen if message["parent_header"].get("msg_id") == cell]
        return "".join(message["content"].get("text", message["content"].get("evalue", "")) for message in ours)

    def until(self, wanted: Callable[[Any], bool]) -> Any:
        """Return the first message of which ``wanted`` is true, seen already or to come."""
        for message in self.seen:
            if wanted(message):
                return message
        end = time.monotonic() + WITHIN_S
        while time.monotonic() < end:
            try:
                self.seen.append(self.client.get_iopub_msg(timeout=1))
            except queue.Empty:
                continue
            if wanted(self.seen[-1]):
                return self.seen[-1]
        raise AssertionError(f"not seen among {[message['msg_type'] for message in self.seen]}")

    def shown(self) -> list[dict[str, Any]]:
        """The displays of a cell as they stand, in their order."""
        displays: dict[str, dict[str, Any]] = {}
        for message in self.seen:
            if message["msg_type"] in ("display_data", "update_display_data"):
                name = message["content"]["transient"].get("display_id", message["header"]["msg_id"])
                displays[name] = message["content"]["data"]
        return list(displays.values())


@contextmanager
def started_kernel(folder: Path) -> Iterator[Kernel]:
    """A kernel that works in a folder, and finds this project."""
    import jupyter_client  # here, because it is not installed everywhere

    manager, client = jupyter_client.manager.start_new_kernel(cwd=str(folder), startup_timeout=WITHIN_S)
    try:
        kernel = Kernel(client)
        kernel.run(f"import sys; sys.path.insert(0, {str(PROJECT_ROOT)!r})")
        yield kernel
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
