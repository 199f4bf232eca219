"""Fetches data sets by name, once per node."""

from __future__ import annotations

import shutil
import zlib
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

from gaudi_tune.base.node_cache import cache_root, prepare_once

TIMEOUT_S = 20
"""How long to wait for a server's next byte."""


@dataclass(frozen=True)
class RemoteData:
    """An archive on a server, and the folder that it contains."""

    address: str
    folder: str
    """The folder in the archive that holds ``train/`` and ``val/``."""
    checksum: str | None = None
    """The published checksum, as pooch writes it. None: there is none; a zip archive has one for each file in it."""


DATA_SETS = {
    # Ants and bees, 47 MB, 244 images to train on and 153 to validate.
    "hymenoptera": RemoteData("https://download.pytorch.org/tutorial/hymenoptera_data.zip", "hymenoptera_data"),
    # Ten classes of ImageNet, shorter side 160 pixels, 99 MB; address and checksum as in torchvision's Imagenette.
    "imagenette": RemoteData(
        "https://s3.amazonaws.com/fast-ai-imageclas/imagenette2-160.tgz",
        "imagenette2-160",
        checksum="md5:e793b78cc4c9e9a4ccc0c1155377a412",
    ),
}


def fetch(name: str) -> Path:
    """Return the folder of a data set of :data:`DATA_SETS`, which is fetched and unpacked if this node lacks it.

    Other processes of the node wait for the first.

    Raises:
        ValueError: It cannot be fetched, or is damaged; the message says where to download it and where to save it.
    """
    data = DATA_SETS[name]
    return prepare_once(name, {"address": data.address}, lambda folder: _fetch_into(folder, name, data)) / data.folder


def _fetch_into(folder: Path, name: str, data: RemoteData) -> None:
    archive = cache_root() / "downloads" / data.address.rsplit("/", maxsplit=1)[1]
    try:
        download(data.address, archive, data.checksum)
        _unpack(archive, folder)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"--data {name}: {data.address} cannot be fetched ({error}). Download it where there is a network and save "
            f"it as {archive}, or give a folder that holds its train/ and val/ with --data FOLDER."
        ) from error


def download(address: str, file: Path, checksum: str | None = None) -> None:
    """Download ``address`` to ``file``, which appears when it is complete, unless it is there already.

    Raises:
        OSError: The server cannot be reached, or the connection ended too soon.
        ValueError: What arrived has another checksum.
    """
    import pooch  # here, since few need it

    pooch.get_logger().setLevel("WARNING")  # it would name the checksum of a file that has none
    downloader = pooch.HTTPDownloader(timeout=TIMEOUT_S)
    pooch.retrieve(address, checksum, file.name, file.parent, downloader=downloader)


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive, or remove it if it is damaged, so that the next run fetches it again."""
    try:
        shutil.unpack_archive(archive, folder)
    except (BadZipFile, shutil.ReadError, zlib.error, EOFError) as error:
        archive.unlink()
        raise ValueError(f"the archive is damaged: {error}") from error
