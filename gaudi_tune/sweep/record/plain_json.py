"""Values as JSON that gives them back as they were: tuples, sets and bytes too, and keys that are no strings.

What JSON has no form for is an object of one entry there, whose name begins with ``$``. An object of some other class
is kept pickled; :func:`from_json_form` loads it for a resume alone.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable, Collection
from typing import Any

import cloudpickle
import numpy as np

JSON_SCALARS = frozenset({type(None), bool, int, float, str})
"""The types of values that JSON has itself, with NaN and infinities as Python writes them."""
LISTED: dict[str, type[Collection[Any]]] = {"$tuple": tuple, "$set": set, "$frozenset": frozenset}
"""The collections that are lists in JSON, by the name that stands for them."""
BYTES, OBJECT, DICT, NUMBERED = "$bytes", "$object", "$dict", "$numbered"


def json_form(value: Any) -> Any:
    """Return what ``json`` writes for a value.

    >>> json_form({"rungs": (1, 3), 4: b"ab"})
    {'$dict': [['rungs', {'$tuple': [1, 3]}], [4, {'$bytes': 'YWI='}]]}
    >>> json_form({3: 0.5})
    {'$numbered': {3: 0.5}}
    """
    if type(value) in JSON_SCALARS:
        return value
    if isinstance(value, dict):  # one of another class, such as a Counter, comes back as a plain one
        return _dict_form(value)
    if isinstance(value, np.number | np.bool_):
        return float(value) if isinstance(value, np.floating) else value.item()
    if isinstance(value, bytes):
        return {BYTES: _as_text(value)}
    if isinstance(value, list):
        return _list_form(value)
    for name, listed_kind in LISTED.items():
        if isinstance(value, listed_kind):
            return {name: _list_form(value)}
    return {OBJECT: _as_text(cloudpickle.dumps(value))}


def _dict_form(values: dict[Any, Any]) -> dict[Any, Any]:
    # Most dictionaries have scalars alone, and stay as they are: ten thousand trials have a million of these.
    key_types = set(map(type, values))
    has_scalars = JSON_SCALARS.issuperset(map(type, values.values()))
    if key_types <= {str} and "$" not in "".join(values):
        return values if has_scalars else {name: json_form(value) for name, value in values.items()}
    if key_types == {int}:
        return {NUMBERED: values if has_scalars else {key: json_form(value) for key, value in values.items()}}
    return {DICT: [[json_form(key), json_form(value)] for key, value in values.items()]}


def _list_form(values: Collection[Any]) -> list[Any]:
    return list(values) if JSON_SCALARS.issuperset(map(type, values)) else [json_form(value) for value in values]


def from_json_form(*, load_objects: bool) -> Callable[[dict[str, Any]], Any]:
    """Return an ``object_hook`` for ``json.loads`` that gives the values of :func:`json_form` back.

    Args:
        load_objects: Whether objects are unpickled, which runs whatever the text says. Otherwise they are None, and so
            are bytes, which are the pickles of others.
    """

    def hook(form: dict[str, Any]) -> Any:
        if len(form) != 1:
            return form
        ((name, content),) = form.items()
        if name in LISTED:
            return LISTED[name](content)  # type: ignore[call-arg]
        if name == NUMBERED:
            return {int(key): value for key, value in content.items()}
        if name == DICT:
            return dict(content)
        if name not in (BYTES, OBJECT):
            return form
        if not load_objects:
            return None
        packed = base64.b64decode(content)
        return pickle.loads(packed) if name == OBJECT else packed  # noqa: S301  (for a resume, which runs it anyway)

    return hook


def _as_text(content: bytes) -> str:
    return base64.b64encode(content).decode()
