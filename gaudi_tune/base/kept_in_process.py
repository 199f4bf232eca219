"""Objects that stay one object: Tune pickles its settings when a sweep is resumed, and would go on with copies."""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

from gaudi_tune.base.errors import SweepError

NO_RESTORE = "a sweep is resumed with build_tuner(..., resume=NAME), or --resume NAME, not with Tuner.restore()"

_kept: WeakValueDictionary[int, Any] = WeakValueDictionary()


class KeptInProcess:
    """Pickled and copied as a reference: unpickled in this process, it is the object itself."""

    def __reduce__(self) -> tuple[Any, ...]:
        _kept[id(self)] = self
        return _get, (id(self),)


def _get(key: int) -> Any:
    try:
        return _kept[key]
    except KeyError as error:
        raise SweepError(NO_RESTORE) from error
