"""Messages of a widget that reach the kernel of a notebook while it runs a cell.

They come through the kernel's shell channel, and wait there until the cell has ended: JupyterLab asks newer kernels for
a subshell, others do not, and ipykernel may send them back to the thread of the cell. Here they are taken where they
arrive: by the thread that ipykernel 7 has for the channel, or in ipykernel 6 by the cell itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any


class WidgetMessages:
    """Takes the custom messages of one widget from now on, and leaves all other messages to the kernel."""

    def __init__(self, kernel: Any, comm_id: str, take: Callable[[Any], object]) -> None:
        """Call ``take`` with the content of each message, in any thread."""
        self._kernel, self._comm_id, self._take = kernel, comm_id, take
        self._stream = kernel.shell_stream
        self._usual = self._stream._recv_callback  # its setter is public (on_recv), its getter is not
        self._stream._recv_callback = self._receive
        self._cell = kernel.get_parent("shell")

    def poll(self) -> None:
        """Take what has come, if no thread does. Call this in the thread of the cell."""
        is_read_here = getattr(self._kernel, "shell_channel_thread", None) is None
        if is_read_here and threading.current_thread() is threading.main_thread():
            self._stream.flush()

    def stop(self) -> None:
        """Leave all messages to the kernel again."""
        self._stream._recv_callback = self._usual

    def _receive(self, frames: Sequence[Any]) -> Any:
        kernel = self._kernel
        _, parts = kernel.session.feed_identities(frames, copy=False)
        if not self._is_ours(parts):
            return self._usual(frames)
        message = kernel.session.deserialize(parts, copy=False)  # this checks the signature
        self._take(message["content"]["data"]["content"])
        # The browser keeps a message until it is told that the kernel is idle, and shows a kernel as it was last told.
        kernel._publish_status("idle", "shell", parent=message)
        kernel._publish_status("busy", "shell", parent=self._cell)
        return None

    def _is_ours(self, parts: Sequence[Any]) -> bool:
        """Whether the parts of a message (signature, header, parent, metadata, content) are for the widget."""
        unpack = self._kernel.session.unpack
        if len(parts) < 5 or unpack(parts[1].bytes)["msg_type"] != "comm_msg":
            return False
        content = unpack(parts[4].bytes)
        return content.get("comm_id") == self._comm_id and content["data"].get("method") == "custom"
