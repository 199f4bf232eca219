"""Sweeps that are fetched from a storage, to go on here or to be looked at; and what a plan refuses."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from gaudi_tune import Experiment, SweepError, SweepOptions
from gaudi_tune.base.files import MAX_JSON_BYTES, OWNER_FILE, SWEEP_FILE
from gaudi_tune.cli.commands import main
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.storage import owner as owner_module
from gaudi_tune.storage.fetch import VIEWED_BYTES, fetch_rest, fetch_to_resume, view, working_folder
from gaudi_tune.storage.owner import Owner, owner_in, take
from gaudi_tune.storage.remote import Remote, address_below, address_of, is_safe, split
from tests.helpers.earlier_sweeps import earlier_sweep
from tests.helpers.object_store import BUCKET, ObjectStore
from tests.helpers.quadratic import QUADRATIC

PLAIN = Experiment(
    name="quadratic",
    train_loop=QUADRATIC.train_loop,
    config_class=QUADRATIC.config_class,
    space=QUADRATIC.space,
    baseline=QUADRATIC.baseline,
    metric="score",
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the sweep "earlier"."""
    folder = tmp_path_factory.mktemp("there")
    earlier_sweep(PLAIN, folder, lambda config: -abs(config["x"]))
    return {file.name: file.read_bytes() for file in (folder / "earlier").iterdir() if file.is_file()}


@pytest.fixture
def address(store: ObjectStore, files: dict[str, bytes], request: pytest.FixtureRequest) -> str:
    """A storage with the sweep "earlier", whose machine is gone."""
    prefix = request.node.name[:50].replace("[", "-").strip("]")
    for name, content in files.items():
        store.put(f"{prefix}/earlier/{name}", content)
    return f"s3://{BUCKET}/{prefix}"


def owned(address: str, **fields: Any) -> None:
    Remote(f"{address}/earlier").write(OWNER_FILE, Owner(id="its", host="node-2", **fields).text)


def test_addresses_are_read_also_where_a_path_has_shortened_them() -> None:
    for text, address in {
        "s3://b/p/": "s3://b/p",
        str(Path("s3://b/p")): "s3://b/p",
        "file:///tmp/x": "file:///tmp/x",
        str(Path("file:///tmp/x")): "file:///tmp/x",
        str(Path("s3://b/p?endpoint_override=http://h:1")): "s3://b/p?endpoint_override=http://h:1",
    }.items():
        assert address_of(text) == address
    assert address_of("results") is None
    assert address_of(Path("/results")) is None
    assert address_below("s3://b/p?region=x", "a") == "s3://b/p/a?region=x"
    assert split("s3://b/p/a?region=x") == ("s3://b/p?region=x", "a")


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x", "a//x", ".", "a/\0"])
def test_a_name_that_leads_out_of_the_folder_is_not_fetched(name: str) -> None:
    assert not is_safe(name)
    assert is_safe("trial-001/checkpoint_000000/state.pt")


@pytest.mark.parametrize(
    ("storage", "message"),
    [
        ("s3://no-such-bucket/x", r"--storage s3://no-such-bucket/x: .* NO_SUCH_BUCKET .*docs/storage"),
        ("ftp://host/x", r"--storage ftp://host/x: a storage is .* s3://BUCKET/PREFIX, gs:.*; give one of these"),
        ("s3://key:secret@sweeps/x", r"--storage s3://\.\.\.: the address has a password"),
        ("s3://sweeps/x?no=1", r"--storage s3://sweeps/x\?no=1: this address cannot be read .*'no'"),
        ("file:///proc/x", r"--storage file:///proc/x: "),
    ],
)
def test_a_storage_that_cannot_be_used_is_an_error_of_the_plan(store: ObjectStore, storage: str, message: str) -> None:
    with pytest.raises(SweepError, match=message):
        make_plan(PLAIN, SweepOptions(storage=Path(storage), device="cpu"))


def test_a_storage_that_does_not_answer_is_an_error_of_the_plan(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaudi_tune.storage.remote.CHECK_WITHIN_S", 0.5)
    store.proxy.stalls = True
    with pytest.raises(SweepError, match="does not answer; give the address of a storage in which you may list"):
        make_plan(PLAIN, SweepOptions(storage=Path(f"s3://{BUCKET}/x"), device="cpu"))


def test_a_new_sweep_has_a_working_copy_here_and_a_name_that_is_free_there(address: str) -> None:
    plan = make_plan(PLAIN, SweepOptions(storage=Path(address), name="new", device="cpu"))
    assert plan.folder == working_folder(address) / "new"
    assert not plan.folder.exists()
    assert f"--storage {address}" in plan.how_to_resume() or repr(address) in plan.how_to_resume()
    with pytest.raises(SweepError, match=f"--name earlier: a sweep in {address} has this name"):
        make_plan(PLAIN, SweepOptions(storage=Path(address), name="earlier", device="cpu"))


def test_a_sweep_goes_on_on_another_machine(address: str) -> None:
    owned(address, ended=True)
    for options in (SweepOptions(resume=f"{address}/earlier"), SweepOptions(resume="earlier", storage=Path(address))):
        plan = make_plan(PLAIN, options)
        assert (plan.name, plan.folder) == ("earlier", working_folder(address) / "earlier")
        assert (plan.address, plan.fetched_from) == (address, (address, "earlier"))
        assert plan.owner == owner_in(Remote(f"{address}/earlier"))
    with pytest.raises(SweepError, match=r"--resume .*other: no such sweep; found in .*: earlier"):
        make_plan(PLAIN, SweepOptions(resume=f"{address}/other"))
    copied = make_plan(PLAIN, SweepOptions(resume=f"{address}/earlier", name="new", storage=Path(address)))
    assert (copied.folder.name, copied.origin, copied.owner) == ("new", "earlier", None)


def test_the_same_options_begin_a_sweep_in_a_storage_and_continue_it_which_fetches_its_file_once(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owned(address, ended=True)
    fetched: list[str] = []
    original_open = Remote.open

    def noted(remote: Remote, name: str) -> BinaryIO:
        fetched.append(name)
        return original_open(remote, name)

    monkeypatch.setattr(Remote, "open", noted)
    assert not make_plan(PLAIN, SweepOptions(name="night", resume="auto", storage=Path(address))).resumed
    plan = make_plan(PLAIN, SweepOptions(name="earlier", resume="auto", storage=Path(address)))
    assert plan.resumed
    assert (plan.folder, plan.address) == (working_folder(address) / "earlier", address)
    assert (plan.fetched_from, plan.owner) == ((address, "earlier"), owner_in(Remote(f"{address}/earlier")))
    assert fetched.count("sweep.json") == 1


def test_the_same_options_continue_a_sweep_that_its_storage_never_got_from_the_folder_here(store: ObjectStore) -> None:
    address = f"s3://{BUCKET}/empty"
    earlier_sweep(PLAIN, working_folder(address), lambda config: -abs(config["x"]))
    plan = make_plan(PLAIN, SweepOptions(name="earlier", resume="auto", storage=Path(address)))
    assert (plan.resumed, plan.folder, plan.address) == (True, working_folder(address) / "earlier", address)
    assert (plan.fetched_from, plan.owner) == (None, None)


def test_a_sweep_that_another_machine_runs_is_not_resumed(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_module, "BEAT_S", 0.1)
    monkeypatch.setattr(owner_module, "GONE_AFTER_S", 5.0)
    owned(address)
    beating = threading.Timer(0.5, owned, (address,), {"beat": 1})
    beating.start()
    with pytest.raises(SweepError, match="this sweep is running on node-2; wait for it, or end it first"):
        fetch_to_resume(address, "earlier")
    beating.join()
    monkeypatch.setattr(owner_module, "GONE_AFTER_S", 0.5)
    assert fetch_to_resume(address, "earlier")[0].is_dir(), "nothing is heard of that machine any more"


def test_one_of_two_machines_gets_a_sweep(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_module, "SETTLE_S", 0.1)
    owned(address, ended=True)
    remote = Remote(f"{address}/earlier")
    seen = owner_in(remote)
    take(remote, seen, Owner(id="first"))
    with pytest.raises(SweepError, match="this sweep has just begun"):
        take(remote, seen, Owner(id="second"))


def test_a_copy_that_another_machine_has_overtaken_is_moved_aside(address: str) -> None:
    owned(address, ended=True)
    folder, _ = fetch_to_resume(address, "earlier")
    fetch_rest(address, "earlier")
    (folder / OWNER_FILE).write_bytes(Owner(id="mine").text)
    (folder / "unsent").touch()
    assert fetch_to_resume(address, "earlier")[0] == folder
    assert not (folder / "unsent").exists()
    assert [path.name for path in folder.parent.glob("earlier.before-*/unsent")] == ["unsent"]
    (folder / OWNER_FILE).write_bytes(Owner(id="its").text)
    (folder / "newest").touch()
    fetch_to_resume(address, "earlier")
    assert (folder / "newest").exists(), "this machine ran it last"


def test_sweeps_in_a_storage_are_looked_at(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    owned(address)
    assert main(["ls", address, "--json"]) == 0
    (sweep,) = json.loads(capsys.readouterr().out)
    assert (sweep["name"], sweep["state"], sweep["done"]) == ("earlier", "running", 6)
    assert sweep["folder"] == f"{address}/earlier"
    owned(address, ended=True)
    assert main(["show", f"{address}/earlier"]) == 0
    shown = capsys.readouterr().out
    assert "earlier: killed, 6 of 6 trials" in shown
    assert f"--resume earlier --storage {address}" in shown
    learned = make_plan(PLAIN, SweepOptions(learn_from=("earlier",), storage=Path(address), device="cpu"))
    assert learned.learned
    with pytest.raises(SweepError, match="no such sweep"):
        make_plan(PLAIN, SweepOptions(learn_from=(f"{address}/none",), device="cpu"))


def test_a_store_that_was_made_to_harm_writes_nothing_outside(address: str, store: ObjectStore, tmp_path: Path) -> None:
    prefix = f"{address.partition(f'{BUCKET}/')[2]}/earlier"
    store.put(f"{prefix}/../../../../escaped", b"x")
    store.put(f"{prefix}/{OWNER_FILE}", b"[[[")
    folder = view(address, "earlier") / "earlier"
    assert {path.name for path in folder.iterdir()} == {"sweep.json", "state.log"}
    assert not list(tmp_path.rglob("escaped"))


@pytest.fixture
def shared(files: dict[str, bytes], tmp_path: Path) -> Path:
    """A folder that is a storage, with the sweep "earlier"."""
    (tmp_path / "shared" / "earlier").mkdir(parents=True)
    for name, content in files.items():
        (tmp_path / "shared" / "earlier" / name).write_bytes(content)
    return tmp_path / "shared"


def test_no_link_in_a_folder_is_followed(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    private = shared.parent / "private"
    private.mkdir()
    (private / SWEEP_FILE).write_bytes((shared / "earlier" / SWEEP_FILE).read_bytes())
    (private / "summary.json").write_text('{"version": 2, "counts": {}, "best": null, "missing": ["secret"]}')
    (shared / "linked").symlink_to(private)
    (shared / "earlier" / "summary.json").symlink_to(private / "summary.json")
    (shared / "earlier" / "trial-001").symlink_to(private)
    remote = Remote(f"file://{shared}/earlier")
    assert not {"summary.json", "trial-001/summary.json"} & remote.files().keys()
    with pytest.raises(OSError, match="is a link"):
        remote.read("summary.json")
    assert main(["ls", f"file://{shared}", "--json"]) == main(["show", f"file://{shared}/earlier", "--json"]) == 0
    shown = capsys.readouterr().out
    assert "earlier" in shown
    assert "secret" not in shown
    assert "linked" not in shown


def test_no_more_of_a_file_is_fetched_than_a_viewer_reads(shared: Path) -> None:
    for name in ("summary.json", "unknown.bin"):
        with (shared / "earlier" / name).open("wb") as file:
            file.truncate(3 * 2**30)
    viewed = view(f"file://{shared}") / "earlier"
    assert (viewed / "summary.json").stat().st_size == MAX_JSON_BYTES
    assert not (viewed / "unknown.bin").exists()


def test_no_more_of_an_object_is_fetched_than_a_viewer_reads(
    address: str, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(f"{address.partition(f'{BUCKET}/')[2]}/earlier/summary.json", bytes(2000))
    monkeypatch.setitem(VIEWED_BYTES, "summary.json", 1000)
    assert (view(address, "earlier") / "earlier" / "summary.json").read_bytes() == bytes(1000)
