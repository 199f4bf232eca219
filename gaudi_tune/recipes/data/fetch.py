"""Fetches data sets by name, once per node."""

from __future__ import annotations

import hashlib
import shutil
import urllib.error
import urllib.request
import zlib
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from filelock import FileLock

from gaudi_tune.base.node_cache import cache_root, prepare_once

TIMEOUT_S = 20
"""How long to wait for a server's next byte."""
CHUNK = 2**20
"""How many bytes are read at a time."""


@dataclass(frozen=True)
class RemoteData:
    """An archive on a server, and the folder that it contains."""

    address: str
    folder: str
    """The folder in the archive that holds ``train/`` and ``val/``."""
    md5: str | None = None
    """The published checksum. None: there is none, and the checksums inside the zip archive are checked instead."""


DATA_SETS = {
    # Ants and bees, 47 MB, 244 images to train on and 153 to validate.
    "hymenoptera": RemoteData("https://download.pytorch.org/tutorial/hymenoptera_data.zip", "hymenoptera_data"),
    # Ten classes of ImageNet, shorter side 160 pixels, 99 MB; address and checksum as in torchvision's Imagenette.
    "imagenette": RemoteData(
        "https://s3.amazonaws.com/fast-ai-imageclas/imagenette2-160.tgz",
        "imagenette2-160",
        md5="e793b78cc4c9e9a4ccc0c1155377a412",
    ),
}


def fetch(name: str) -> Path:
    """Return the folder of a data set of :data:`DATA_SETS`, which is fetched and unpacked if this node lacks it.

    An interrupted download continues where it stopped. Other processes of the node wait for the first.

    Raises:
        ValueError: It cannot be fetched, or is damaged; the message says where to download it and where to save it.
    """
    data = DATA_SETS[name]
    return prepare_once(name, {"address": data.address}, lambda folder: _fetch_into(folder, name, data)) / data.folder


def _fetch_into(folder: Path, name: str, data: RemoteData) -> None:
    archive = cache_root() / "downloads" / data.address.rsplit("/", maxsplit=1)[1]
    archive.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(f"{archive}.lock"):
            if not archive.is_file():
                download(data.address, archive)
            _check(archive, data)
            shutil.unpack_archive(archive, folder)
    except (OSError, BadZipFile, shutil.ReadError) as error:
        raise ValueError(
            f"--data {name}: {data.address} cannot be fetched ({error}). Download it where there is a network and save "
            f"it as {archive}, or give a folder that holds its train/ and val/ with --data FOLDER."
        ) from error


def download(address: str, file: Path) -> None:
    """Download ``address`` to ``file``, which appears when it is complete. An interrupted download is continued.

    Raises:
        OSError: The server cannot be reached, or the connection ended too soon.
        ValueError: The address is not http or https.
    """
    if not address.startswith(("https://", "http://")):
        raise ValueError(f"only https:// and http:// are fetched, but got {address}")
    partial = file.with_name(f"{file.name}.partial")
    size = partial.stat().st_size if partial.is_file() else 0
    request = urllib.request.Request(address, headers={"Range": f"bytes={size}-"} if size else {})
    expected = 0  # unknown
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            continues = response.status == 206  # otherwise the server sends everything again
            length = response.headers.get("Content-Length")
            if length:
                expected = int(length) + (size if continues else 0)
            with partial.open("ab" if continues else "wb") as file_to_fill:
                shutil.copyfileobj(response, file_to_fill, CHUNK)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # 416: nothing is left to send, since an earlier download had all of it
            raise
        expected = size
    if expected and partial.stat().st_size != expected:
        raise OSError(
            f"the connection ended after {partial.stat().st_size} of {expected} bytes; start again to continue"
        )
    partial.replace(file)


def _check(archive: Path, data: RemoteData) -> None:
    """Raise an OSError and remove the archive if it is damaged."""
    damage = None
    if data.md5 is not None:
        digest = hashlib.md5(usedforsecurity=False)
        with archive.open("rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
        if digest.hexdigest() != data.md5:
            damage = f"its md5 is {digest.hexdigest()}, and should be {data.md5}"
    elif archive.suffix == ".zip":
        try:
            with ZipFile(archive) as zip_file:
                damaged_file = zip_file.testzip()
            if damaged_file:
                damage = f"{damaged_file} in it is damaged"
        except (BadZipFile, zlib.error, EOFError) as error:
            damage = str(error)
    if damage:
        archive.unlink()  # so that the next run fetches it again
        raise OSError(f"the archive is not what was published: {damage}")
