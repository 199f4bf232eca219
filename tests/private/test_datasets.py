"""datasets makes its fingerprints wherever the libraries are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow
import pytest

from gaudi_tune.define.options import PROJECT_ROOT

pytestmark = pytest.mark.processes

SCRIPT = """
import sys
from gaudi_tune.private.datasets import import_datasets
rows = import_datasets().Dataset.from_dict({"label": [3, 4]})
print(sys.modules["pyarrow"].__file__, rows["label"][1])
"""


def link(source: str, target: str) -> None:
    """Link a file, or copy it to another file system: dill looks at where a symbolic link leads."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)


def test_a_table_can_be_made_where_pyarrow_is_outside_of_site_packages(tmp_path: Path) -> None:
    shutil.copytree(Path(pyarrow.__file__).parent, tmp_path / "pyarrow", copy_function=link)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{PROJECT_ROOT}"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == ([str(tmp_path / "pyarrow" / "__init__.py"), "4"], "")
