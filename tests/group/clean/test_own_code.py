"""The user's own code as trials load it: each gets its own, and what is installed stays."""

from __future__ import annotations

import gc
import os
import pickle
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from ray import cloudpickle

import gaudi_tune
from gaudi_tune.group.clean import own_code
from gaudi_tune.group.clean.own_code import OwnCode, is_own_file
from gaudi_tune.training.script_loop import run_script
from trainables import bert

Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module beside the script. It is older than the worker, unless it is said to be new."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def write(name: str, text: str, *, new: bool = False) -> None:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
        age_s = 0 if new else 86400 + 10 * len(text)  # two versions have two ages: Python looks at the time of a file
        os.utime(file, (time.time() - age_s, time.time() - age_s))

    yield write
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def code_of_script(text: str, name: str = "train_loop") -> OwnCode:
    """A train loop as the driver sends it that has run ``text`` as its script."""
    script: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(textwrap.dedent(text), "script.py", "exec"), script)
    return OwnCode(cloudpickle.dumps(script[name]))


def results(code: OwnCode, trials: int = 3) -> list[Any]:
    """What the loop returns in one trial after another."""
    returned: list[Any] = []
    for _ in range(trials):
        code.forget()
        returned.append(code.load()({}))
    return returned


def test_each_trial_begins_with_the_globals_of_the_script_and_of_all_its_modules(write: Write) -> None:
    write("helper.py", "import deeper\nbest = 1.0\n")
    write("deeper.py", "import functools\nseen = []\n@functools.cache\ndef answer():\n    return 42\n")
    write("kit/__init__.py", "from kit.part import counts\n")
    write("kit/part.py", "counts = {}\n")
    write("late.py", "calls = 0\n")
    code = code_of_script(
        """
        import helper, kit

        best = 1.0

        class Net:
            made = 0

        def train_loop(config):
            global best
            import late
            found = [best, helper.best, helper.deeper.seen[:], dict(kit.part.counts), late.calls, Net.made]
            found += [hasattr(Net, "extra"), helper.deeper.answer.cache_info().currsize]
            best = helper.best = 0.5
            helper.deeper.seen.append(1)
            kit.counts["a"] = 1
            late.calls = Net.made = 1
            Net.extra = helper.deeper.answer()
            return found
        """
    )
    assert results(code) == [[1.0, 1.0, [], {}, 0, 0, False, 0]] * 3


def test_a_script_that_is_tuned_line_by_line_has_new_modules_in_each_trial(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("helper.py", "calls = 0\n")
    source = "import helper, sys\nhelper.calls += 1\nsys.said.append(helper.calls)\n"
    said: list[int] = []
    monkeypatch.setattr(sys, "said", said, raising=False)
    code = OwnCode(cloudpickle.dumps(lambda config: run_script(config, "script.py", source)))
    results(code)
    assert said == [1, 1, 1]


def test_objects_of_own_classes_are_of_the_classes_that_the_trial_imports(write: Write, tmp_path: Path) -> None:
    """Data that was made before the sweep, and what an earlier trial has pickled."""
    write("data.py", "class Rows(list):\n    pass\n")
    code = code_of_script(
        f"""
        import pathlib, pickle
        import data

        prepared = data.Rows([1, 2])
        file = pathlib.Path({str(tmp_path / "saved")!r})

        def train_loop(config):
            import data
            saved = pickle.loads(file.read_bytes()) if file.exists() else prepared
            file.write_bytes(pickle.dumps(prepared))
            same = type(prepared) is type(saved) is data.Rows
            prepared.append(3)
            return same, len(prepared)
        """
    )
    assert results(code) == [(True, 3)] * 3


def test_code_of_a_trial_is_freed_after_it(write: Write) -> None:
    """Otherwise memory would grow with each trial by all that the script's functions use."""
    write("helper.py", "from typing import List, Optional\nclass Row: pass\nRows = List[Row]\nAny = Optional[Row]\n")
    code = code_of_script(
        """
        import helper, weakref
        class Net(helper.Row): pass
        def train_loop(config):
            return weakref.ref(helper.Row), weakref.ref(Net)
        """
    )
    (loaded,) = results(code, trials=1)
    code.forget()
    gc.collect()
    assert [reference() for reference in loaded] == [None, None]


def test_installed_modules_stay(write: Write) -> None:
    """Otherwise classes of libraries, and what they have registered, would no longer fit together."""
    write("helper.py", "")
    OwnCode(cloudpickle.dumps(bert.train_loop))
    code = code_of_script("import helper, json, torch, trainables.bert\ndef train_loop(config): return torch, helper")
    (first, first_helper), (second, second_helper) = results(code, trials=2)
    assert first is second is torch
    assert first_helper is not second_helper
    assert sys.modules["trainables.bert"] is bert
    assert pickle.loads(pickle.dumps(bert.train_loop)) is bert.train_loop


def test_what_an_installer_has_recorded_stays_in_a_folder_of_any_name(write: Write) -> None:
    """As with ``pip install --target``. What is beside it, such as the script's modules, is the user's own."""
    write("library-1.dist-info/RECORD", "library/__init__.py,sha256=0,10\nspace/part/deep.py,,\nsingle.py,,\n")
    for name in ("library/__init__.py", "single.py", "helper.py"):
        write(name, "trials = 0\n")
    write("space/part/deep.py", "trials = 0\n")
    code = code_of_script("""
        def train_loop(config):
            import library, single, helper, space.part.deep
            for module in (library, single, helper, space.part.deep):
                module.trials += 1
            return library.trials, single.trials, helper.trials, space.part.deep.trials
    """)
    assert results(code) == [(1, 1, 1, 1), (2, 2, 1, 2), (3, 3, 1, 3)]


def test_what_this_project_runs_on_is_never_forgotten(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nothing records it, as in a folder of unpacked wheels."""
    monkeypatch.delitem(sys.modules, "tomli", raising=False)
    write("tomli/__init__.py", "trials = 0\n")
    code = code_of_script("""
        def train_loop(config):
            import tomli
            tomli.trials += 1
            return tomli.trials
    """)
    assert results(code) == [1, 2, 3]


def test_a_module_that_is_edited_while_the_sweep_runs_stays_as_it_was(write: Write) -> None:
    write("helper.py", "version = 1\n")
    code = code_of_script("def train_loop(config):\n    import helper\n    return helper.version\n")
    assert results(code, trials=1) == [1]
    write("helper.py", "version = 2 + 0\n", new=True)
    assert results(code) == [1, 1, 1]


def test_a_module_that_a_trial_writes_for_itself_is_read_each_time(write: Write, tmp_path: Path) -> None:
    code = code_of_script(
        f"""
        import importlib, pathlib

        def train_loop(config):
            file = pathlib.Path({str(tmp_path / "made.py")!r})
            text = file.read_text() + "#" if file.exists() else "length = 0 #"
            file.write_text(text.replace(text[:10], f"length = {{len(text) % 10}}"))
            importlib.invalidate_caches()
            import made
            return made.length
        """
    )
    assert results(code) == [2, 3, 4]


def test_a_model_of_an_own_module_can_be_compiled_in_each_trial(write: Write) -> None:
    """torch keeps what it has compiled with a code object, and refers to the globals of its module."""
    write(
        "net.py",
        """
        import torch

        scale = 2.0

        class Net(torch.nn.Module):
            def forward(self, x):
                return x * scale
        """,
    )
    code = code_of_script(
        """
        import torch
        import net

        def train_loop(config):
            net.scale += 1
            return torch.compile(net.Net(), backend="eager")(torch.ones(1)).item()
        """
    )
    assert results(code, trials=2) == [3.0, 3.0]


@pytest.mark.parametrize(
    ("file", "own"),
    [("script.py", True), ("/tmp/ipykernel_7/1.py", True), ("<ipython-input-1>", True), ("<string>", False)],
)
def test_code_of_scripts_and_cells_is_own(file: str, own: bool) -> None:
    assert is_own_file(file) is own
    assert not is_own_file(torch.__file__)
    assert not is_own_file(os.__file__)
    assert Path(gaudi_tune.__file__).parent == own_code.PACKAGE
    assert not is_own_file(f"{own_code.PACKAGE}/training/session.py")


def test_a_package_that_makes_a_device_known_to_torch_is_imported_once_wherever_it_is(write: Write) -> None:
    registers = "import sys, torch; torch.hpu = sys.modules['torch.hpu'] = sys.modules[__name__]"
    write("habana_frameworks/__init__.py", registers)
    code = code_of_script("""
        def train_loop(config):
            import habana_frameworks
            import torch.hpu
            torch.hpu.trials = getattr(habana_frameworks, "trials", 0) + 1
            return torch.hpu.trials
    """)
    try:
        assert results(code) == [1, 2, 3]
    finally:
        sys.modules.pop("torch.hpu", None)
        vars(torch).pop("hpu", None)
