"""A configuration that notes which of its entries a train loop reads, so that a value without effect is found."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from typing_extensions import override

STRICT = ("omegaconf",)
"""Modules that take a dict for one only if its class is dict itself."""


class NotedConfig(dict[str, Any]):
    """A dict that notes the keys that were looked up. Whoever goes through all of it has read every key.

    Copied or pickled it is a plain dictionary, so that a checkpoint may have it.

    >>> config = NotedConfig(lr=0.1, dropout=0.2)
    >>> config["lr"], config.unread
    (0.1, ['dropout'])
    >>> {**config}, config.unread
    ({'lr': 0.1, 'dropout': 0.2}, [])
    """

    def __init__(self, *args: Any, **entries: Any) -> None:
        """Begin with the entries of a dict, of which none was read."""
        super().__init__(*args, **entries)
        self._unread = dict.fromkeys(dict.keys(self))

    @property
    def unread(self) -> list[str]:
        """The keys that nobody has read so far."""
        return list(self._unread)

    @override
    def __getitem__(self, key: str) -> Any:
        self._unread.pop(key, None)
        return super().__getitem__(key)

    @override
    def get(self, key: str, default: Any = None) -> Any:
        self._unread.pop(key, None)
        return super().get(key, default)

    @override
    def pop(self, key: str, *default: Any) -> Any:
        self._unread.pop(key, None)
        return super().pop(key, *default)

    @override
    def setdefault(self, key: str, default: Any = None) -> Any:
        self._unread.pop(key, None)
        return super().setdefault(key, default)

    # Python itself calls these for dict(config), f(**config) and json.dumps(config).

    @override
    def __iter__(self) -> Iterator[str]:
        self._unread.clear()
        return super().__iter__()

    @override
    def keys(self) -> Any:
        self._unread.clear()
        return super().keys()

    @override
    def values(self) -> Any:
        self._unread.clear()
        return super().values()

    @override
    def items(self) -> Any:
        self._unread.clear()
        return super().items()

    @override
    def copy(self) -> dict[str, Any]:
        return dict(self.items())

    @override
    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    @override
    def __ror__(self, other: Any) -> Any:
        return other | self.copy()

    @override
    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # Not as a dict: torch.load(weights_only=True) calls no function but a few, of which OrderedDict is one.
        return OrderedDict, (), None, None, iter(self.items())


def noted(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration that notes what is read of it; unchanged if a module is there that would refuse it."""
    if any(name in sys.modules for name in STRICT):
        return config
    import yaml  # which Ray needs; its dumpers, too, ask for the class itself

    for representer in (yaml.representer.SafeRepresenter, yaml.representer.Representer):
        representer.add_representer(NotedConfig, lambda dumper, config: dumper.represent_dict(config.copy()))
    return NotedConfig(config)


def unread_keys(config: dict[str, Any] | None) -> list[str]:
    """Return the keys that a train loop has not read so far.

    If it has read none at all, it gets the values in a way that is not seen, and the answer is an empty list.
    """
    if not isinstance(config, NotedConfig) or len(config.unread) == len(config):
        return []
    return config.unread
