"""A proxy before a server, through which the server fails, stalls, is slow and comes back."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

from tests.helpers.deliveries import free_port

PIECE = 64 * 1024


class FaultyProxy:
    """Passes on what comes to its port; tests set how badly."""

    def __init__(self, port: int) -> None:
        """Listen. ``port`` is the server's, on this machine."""
        self._server_port = port
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.fails, self.stalls = False, False
        """Whether connections end at once, and whether nothing comes through any more."""
        self.delay_s = 0.0
        """How long what is sent takes."""
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=64)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End it. Connections that are open go on."""
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.fails:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self._server_port))
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while source.recv(1, socket.MSG_PEEK):
                time.sleep(self.delay_s)
                piece = source.recv(PIECE)  # with what has come meanwhile
                while self.stalls:
                    time.sleep(0.05)
                if self.fails:
                    break
                target.sendall(piece)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
