"""Fetching from a real server on this machine that is interrupted, damaged, or not there."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from gaudi_tune.data import fetch as fetching
from gaudi_tune.data.fetch import RemoteData, download, fetch


def archive() -> bytes:
    made = BytesIO()
    with ZipFile(made, "w") as zipped:
        zipped.writestr("things/train/a.txt", "a" * 5000)
    return made.getvalue()


class Server(ThreadingHTTPServer):
    """Serves one file, and can break off in the middle."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.break_after, self.requests = archive(), 0, 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/things.zip"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.requests += 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        self.wfile.write(self.server.content[: self.server.break_after or None])

    def log_message(self, *args: object) -> None:
        """Stay quiet."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("GAUDI_TUNE_CACHE", str(tmp_path / "cache"))
    server = Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setitem(fetching.DATA_SETS, "things", RemoteData(server.address, "things"))
    yield server
    server.shutdown()
    server.server_close()


def test_it_is_fetched_once(server: Server) -> None:
    for _ in range(2):
        assert (fetch("things") / "train" / "a.txt").read_text() == "a" * 5000
    assert server.requests == 1


def test_a_download_that_was_interrupted_leaves_no_file(server: Server, tmp_path: Path) -> None:
    server.break_after = 100
    with pytest.raises(OSError, match="100 bytes read"):
        download(server.address, tmp_path / "things.zip")
    assert list(tmp_path.iterdir()) == []
    server.break_after = 0
    download(server.address, tmp_path / "things.zip")
    assert (tmp_path / "things.zip").read_bytes() == server.content


def test_a_damaged_archive_is_an_error_and_fetched_again(server: Server) -> None:
    whole = server.content
    server.content = whole.replace(b"aaaa", b"abba", 1)
    with pytest.raises(ValueError, match=r"the archive is damaged: Bad CRC-32 for file 'things/train/a.txt'"):
        fetch("things")
    server.content = whole
    assert fetch("things").is_dir()


def test_an_archive_damaged_inside_its_compressed_data_is_an_error(server: Server) -> None:
    made = BytesIO()
    with ZipFile(made, "w", compression=ZIP_DEFLATED) as zipped:
        zipped.writestr("things/train/a.txt", bytes(range(256)) * 50)
    content = bytearray(made.getvalue())
    content[60:80] = b"\xff" * 20
    server.content = bytes(content)
    with pytest.raises(ValueError, match="the archive is damaged: "):
        fetch("things")


def test_a_checksum_is_held_against_the_file(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    right = hashlib.md5(server.content).hexdigest()
    monkeypatch.setitem(fetching.DATA_SETS, "things", RemoteData(server.address, "things", "md5:" + "0" * 32))
    with pytest.raises(ValueError, match=r"does not match the known hash: expected md5:0000.* but got"):
        fetch("things")
    monkeypatch.setitem(fetching.DATA_SETS, "things", RemoteData(server.address, "things", f"md5:{right}"))
    assert fetch("things").is_dir()


def test_without_a_network_the_address_and_the_place_are_named(server: Server, tmp_path: Path) -> None:
    server.shutdown()
    server.server_close()
    expected = tmp_path / "cache" / "downloads" / "things.zip"
    with pytest.raises(ValueError, match=f"{server.address} cannot be .*save it as {expected}, or .*--data FOLDER"):
        fetch("things")
    expected.write_bytes(server.content)
    assert fetch("things").is_dir()
