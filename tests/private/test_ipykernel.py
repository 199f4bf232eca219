"""What this project uses of ipykernel that it does not promise to keep."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.kernel import started_kernel

pytest.importorskip("ipykernel")
CELL = """
import time
from comm import create_comm
from gaudi_tune.private.ipykernel import WidgetMessages

ours, other, taken = create_comm(target_name="ours"), create_comm(target_name="other"), []
other.on_msg(lambda message: taken.append(message["content"]["data"]["content"]))
messages = WidgetMessages(get_ipython().kernel, ours.comm_id, taken.append)
create_comm(target_name="messages are taken")
until = time.monotonic() + 60
while "last" not in taken and time.monotonic() < until:
    messages.poll()
    time.sleep(0.01)
messages.stop()
print(taken)
"""


@pytest.mark.processes
def test_messages_of_a_widget_are_taken_while_a_cell_runs_and_others_wait(tmp_path: Path) -> None:
    with started_kernel(tmp_path) as kernel:
        cell = kernel.start(CELL)
        ours = kernel.until(lambda m: m["content"].get("target_name") == "ours")["content"]["comm_id"]
        other = kernel.until(lambda m: m["content"].get("target_name") == "other")["content"]["comm_id"]
        kernel.until(lambda m: m["content"].get("target_name") == "messages are taken")
        for comm, content in ((ours, "first"), (other, "waits"), (ours, "last")):
            kernel.send(comm, content)
        assert kernel.wait_for_end(cell) == "['first', 'last']\n"
        kernel.send(ours, "too late")
        assert kernel.run("print(taken)") == "['first', 'last', 'waits']\n"
