"""A configuration that notes which of its entries a train loop reads, so that a value without effect is found."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from typing_extensions import override

STRICT = ("omegaconf",)
"""Modules that take a dict for one only if its class is dict itself."""


class NotedConfig(dict[str, Any]):
    """A dict that notes the keys that were looked up. Whoever goes through all of it has read every key.

    Copied or pickled it is a plain dictionary, so that a checkpoint may have it.

    >>> config = NotedConfig(lr=0.1, dropout=0.2)
    >>> config["lr"], list(config.unread)
    (0.1, ['dropout'])
    >>> {**config}, list(config.unread)
    ({'lr': 0.1, 'dropout': 0.2}, [])
    """

    def __init__(self, *args: Any, **entries: Any) -> None:
        """Begin with the entries of a dict, of which none was read."""
        super().__init__(*args, **entries)
        self.unread = dict.fromkeys(dict.keys(self))
        """The keys that nobody has read so far."""

    @override
    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # Not as a dict: torch.load(weights_only=True) calls no function but a few, of which OrderedDict is one.
        return OrderedDict, (), None, None, iter(self.items())


def _reading(method: Callable[..., Any], *, everything: bool) -> Callable[..., Any]:
    """Return a method of dict that notes its first argument as read, or every key."""

    def noting_method(config: NotedConfig, *arguments: Any) -> Any:
        for key in list(config.unread) if everything else arguments[:1]:
            config.unread.pop(key, None)
        return method(config, *arguments)

    return noting_method


for _name in ("__getitem__", "get", "pop", "setdefault"):
    setattr(NotedConfig, _name, _reading(getattr(dict, _name), everything=False))
for _name in ("__iter__", "keys", "values", "items", "copy", "__or__", "__ror__"):  # dict(config) and f(**config), too
    setattr(NotedConfig, _name, _reading(getattr(dict, _name), everything=True))


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
    return list(config.unread)
