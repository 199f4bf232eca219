from __future__ import annotations

import io
import pickle
import pickletools
from collections import Counter

import pytest

from gaudi_tune.private.unpickler import CautiousUnpickler


def load(pickled: bytes) -> object:
    return CautiousUnpickler(io.BytesIO(pickled)).load()


def test_it_reads_what_pickle_writes() -> None:
    content = {
        "a": [1, 2.5, None, True],
        "b": {(1, "x"): b"y"},
        "c": Counter("abca"),
        "d": {1, 2},
        "e": bytearray(b"x"),
    }
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert load(pickle.dumps(content, protocol)) == content


def test_it_sets_attributes_of_objects_and_not_of_types() -> None:
    assert isinstance(load(pickle.dumps(ValueError("x"))), ValueError)
    patch = b"\x80\x02ccollections\nCounter\nN}X\x08\x00\x00\x00elementsX\x07\x00\x00\x00patcheds\x86b."
    pickletools.dis(patch, out=io.StringIO())  # it is a pickle
    with pytest.raises(pickle.UnpicklingError, match="attributes of a type"):
        load(patch)
    assert callable(Counter.elements)


def test_a_number_alone_takes_no_memory() -> None:
    assert load(b"\x80\x02Nr\x00\x00\x00\xff.") is None  # the index of a memory that would have 32 GB
    with pytest.raises(pickle.UnpicklingError, match="cut off"):
        load(b"\x80\x05\x96" + (2**40).to_bytes(8, "little") + b".")
