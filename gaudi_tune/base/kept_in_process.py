"""Objects that are pickled by reference: Tune pickles its settings when a sweep is resumed, and would use copies."""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

from gaudi_tune.base.errors import SweepError

NO_RESTORE = "a sweep is resumed with build_tuner(..., resume=NAME), or --resume NAME, not with Tuner.restore()"

_objects: WeakValueDictionary[int, Any] = WeakValueDictionary()


class KeptInProcess:
    """An object that is pickled and copied as a reference: unpickled in this process, it is the object itself."""

    def __reduce__(self) -> tuple[Any, ...]:
        _objects[id(self)] = self
        return _get_object, (id(self),)


def _get_object(key: int) -> Any:
    try:
        return _objects[key]
    except KeyError as error:
        raise SweepError(NO_RESTORE) from error
