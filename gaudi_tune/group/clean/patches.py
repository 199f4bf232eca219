"""Functions and classes of libraries that the user's own code has replaced (monkey patches)."""

from __future__ import annotations

import sys
from operator import is_
from types import BuiltinFunctionType, FunctionType, GetSetDescriptorType, MethodDescriptorType, WrapperDescriptorType
from typing import Any, NamedTuple

from gaudi_tune.group.clean.own_code import is_own

PATCHED = (
    "builtins", "copy", "datetime", "io", "json", "math", "os", "os.path", "pathlib", "pickle", "random", "shutil",
    "socket", "subprocess", "tempfile", "threading", "time",
    "numpy", "numpy.linalg", "numpy.random", "pandas", "PIL.Image", "tqdm", "tqdm.auto",
    "torch", "torch.autograd", "torch.cuda", "torch.distributed", "torch.nn", "torch.nn.functional", "torch.nn.init",
    "torch.nn.utils", "torch.optim", "torch.optim.lr_scheduler", "torch.utils.data", "torch.serialization",
    "torchvision.datasets", "torchvision.models", "torchvision.transforms", "torchvision.transforms.functional",
)  # fmt: skip
"""Modules whose functions, classes and methods are restored."""
REPLACEABLE = (
    BuiltinFunctionType, FunctionType, GetSetDescriptorType, MethodDescriptorType, WrapperDescriptorType, classmethod,
    property, staticmethod, type,
)  # fmt: skip


class Members(NamedTuple):
    """The functions, classes and methods that a module or a class had."""

    owner: Any
    names: list[str]
    members: list[Any]


def read(name: str) -> list[Members]:
    """Return the functions and classes of a module, and the methods of these classes."""
    module = sys.modules[name]
    snapshot = [_members_of(module)]
    package = name.partition(".")[0]
    classes = {member for member in snapshot[0].members if isinstance(member, type)}
    return snapshot + [_members_of(member) for member in classes if member.__module__.partition(".")[0] == package]


def are_same(snapshot: list[Members]) -> bool:
    """Whether nothing of it was replaced."""
    return all(all(map(is_, map(vars(owner).get, names), members)) for owner, names, members in snapshot)


def restore(snapshot: list[Members]) -> None:
    """Put back what was removed, and what own code has replaced. Libraries may patch each other, and themselves."""
    originals = {id(member) for _, _, members in snapshot for member in members}
    for owner, names, members in snapshot:
        for name, member in zip(names, members, strict=True):
            current = vars(owner).get(name)
            is_function = isinstance(current, FunctionType | type) and id(current) not in originals
            if current is not member and not (is_function and not is_own(current)):
                setattr(owner, name, member)


def _members_of(owner: Any) -> Members:
    # Not isinstance(), which asks an object for its class: a deprecated one answers with a warning.
    members = {name: member for name, member in vars(owner).copy().items() if issubclass(type(member), REPLACEABLE)}
    return Members(owner, list(members), list(members.values()))
