"""datasets, which makes a fingerprint of each table with dill."""

from __future__ import annotations

from functools import cache
from typing import Any

from gaudi_tune.private.surfaces import holds


@cache
def import_datasets() -> Any:
    """Import datasets, and have dill save pyarrow by its name wherever it is installed. No public API does this.

    Outside of site-packages, as after ``pip install --target``, dill takes a module for the user's code and saves all
    that it holds. datasets 5.2 uses pyarrow in what it saves for each fingerprint, and a class of pyarrow's cannot be
    saved.
    """
    import datasets

    if holds("datasets-anywhere"):
        import dill

        in_pythons_folders = dill._dill._is_builtin_module
        dill._dill._is_builtin_module = lambda module: (
            module.__name__.partition(".")[0] == "pyarrow" or in_pythons_folders(module)
        )
    return datasets
