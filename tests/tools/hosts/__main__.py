"""Sweeps over three hosts on this machine, which share nothing: not the folder of the sweep, either.

A host is a set of Linux's namespaces: own network card and address, own processes, own /tmp, home, cache and clocks.
On each, Ray is started as docs/several-nodes.md says, with one CPU core as its only device, and a sweep of a small
torch model trains over them. Afterwards every trial must have ended with the numbers of an undisturbed one, its
metrics must be in MLflow once each, and no process may be left. Prints a table and, last, one JSON object:

    {"kinds": 10, "runs": 10, "lost": 0, "doubled": 0, "leaked": 0}

    python -m tests.tools.hosts [KIND ...] [--times 1]

Takes root's rights on Linux, and nothing else of the machine: even the switch that joins the hosts is in a network
namespace, and all of it ends with this program.

What is not as with real hosts: the shared folder stays there when a host's cable is pulled (a network's folder would
hang), and time namespaces move only the clocks that count from a machine's start. The wall clocks differ by minutes in
Python alone.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.helpers.object_store import BUCKET, CREDENTIALS
from tests.tools.fault_report import Result, conclude, parsed
from tests.tools.faults.accumulating import HURRY
from tests.tools.hosts.network import SHARED, Host, ended_at_exit, leave_machines_network
from tests.tools.hosts.sweep import HostsSweep, start_ray

SHORT_S = 8
"""How long a host is without a network before Ray notices."""
UP_WITHIN_S = 120


class Cluster:
    """Hosts with Ray, and the sweep over them."""

    def __init__(self, folder: Path) -> None:
        """Begin without hosts."""
        self.folder, self.shared = folder, folder / "shared"
        self.shared.mkdir()
        self.hosts: list[Host] = []
        self.line: tuple[str, str] | None = None
        self.sweep: HostsSweep
        self.notes: list[str] = []

    def add_host(self, *, ray: bool = True) -> Host:
        """Add a host that shares the folder, and start Ray there."""
        host = Host(len(self.hosts) + 1, self.folder, self.shared, self.line)
        self.hosts.append(host)
        if ray:
            start_ray(host, self.hosts[0])
        return host

    def add_hosts(self, count: int) -> None:
        """Add so many."""
        for _ in range(count):
            self.add_host()

    def wait_for_port(self, host: Host, port: int) -> None:
        """Wait until something answers there."""
        until = time.monotonic() + UP_WITHIN_S
        with socket.socket() as client:
            while client.connect_ex((host.address, port)):
                assert time.monotonic() < until, f"nothing answers on port {port} of {host.name}"
                time.sleep(0.2)

    def trial_on(self, host: Host) -> float:
        """Return ``x`` of the trial that a host trains."""
        return next(told.x for told in reversed(self.sweep.trained()) if told.host == host.name)

    def begin(self, trials: int, *settings: str, **options: Any) -> HostsSweep:
        """Begin a sweep."""
        self.sweep = HostsSweep(self.hosts, self.shared, trials, **options)
        self.sweep.start(*settings)
        return self.sweep

    def note(self, what: str) -> None:
        """Note something for the table."""
        print(f"  {what}", flush=True)
        self.notes.append(what)


def own_folder(cluster: Cluster) -> None:
    """Three hosts, of which only the first sees the folder of the sweep."""
    cluster.add_hosts(3)
    _check_all_train(cluster, cluster.begin(trials=6))


def shared_folder(cluster: Cluster) -> None:
    """Three hosts that all see the folder of the sweep."""
    cluster.add_hosts(3)
    _check_all_train(cluster, cluster.begin(trials=6, storage=str(SHARED / "results")))


def _check_all_train(cluster: Cluster, sweep: HostsSweep) -> None:
    """Wait for the end of a sweep over three hosts, and count as lost those that have not trained."""
    sweep.check()
    hosts, widths = sweep.hosts_since(0), {told.width for told in sweep.trained()}
    sweep.count("lost", 3 - len(hosts), f"only {hosts} have trained")
    sweep.count("lost", widths != {1}, f"trials have grown over hosts: {widths}")
    cluster.note(f"{len(hosts)} hosts trained")


def group(cluster: Cluster) -> None:
    """A trial on two hosts that have one core each, whose own names are addresses of loopback."""
    cluster.add_hosts(2)
    sweep = cluster.begin(trials=2, workers_per_trial="2")
    assert sweep.wait_for_hosts(2, 120), "both ranks train"
    for host in cluster.hosts:
        rank = next(told for told in reversed(sweep.trained()) if told.host == host.name)
        found = {line.split()[3] for line in host.run("ss", "-tlnpH").splitlines() if f"pid={rank.pid}," in line}
        cluster.note(f"rank {rank.rank} on {host.address} listens at {' '.join(sorted(found))}")
        meeting = {address for address in found if address.endswith(f":{rank.port}")}
        wanted = {f"{rank.master}:{rank.port}"} if rank.rank == 0 else set()
        sweep.count("leaked", meeting != wanted, f"torch's ranks meet at {meeting}, not at {wanted}")
    sweep.check()
    places = {(told.rank, told.host) for told in sweep.trained()}
    sweep.count("lost", len({host for _, host in places}) != 2, f"the ranks were not on two hosts: {places}")
    cluster.note(f"2 ranks on 2 hosts, which met at {sweep.trained()[0].master}")


def group_vanished(cluster: Cluster, *settings: str) -> None:
    """A trial on two hosts, one of which vanishes in its middle: the trial goes on with a third."""
    cluster.add_hosts(3)
    sweep = cluster.begin(1, *settings, epochs=60, epoch_s=1, workers_per_trial="2")
    assert sweep.wait_for_hosts(2, 120), "both ranks train"
    told = next(told for told in reversed(sweep.trained()) if told.host != cluster.hosts[0].name)
    lost, spare = sorted(cluster.hosts[1:], key=lambda host: host.name != told.host)
    lost.pull_cable()
    seconds = sweep.seconds_until(spare, x=told.x)
    cluster.note(f"goes on with another host {seconds:.0f} s after the cable was pulled")
    (sweep.orders / HURRY).touch()
    lost.plug_in()
    sweep.check()


def sharded_vanished(cluster: Cluster) -> None:
    """The same, where each host has a part of the model, and writes a part of each checkpoint."""
    group_vanished(cluster, "sharded=true")


def vanished(cluster: Cluster) -> None:
    """A host whose cable is pulled in the middle of a trial, for a moment and for long; then it comes back."""
    cluster.add_hosts(2)
    sweep = cluster.begin(trials=4, epochs=150, epoch_s=1)
    assert sweep.wait_for_hosts(2, 120), "both hosts train"
    first, lost = cluster.hosts
    x = cluster.trial_on(lost)
    before = len(sweep.trained())
    lost.pull_cable()
    time.sleep(SHORT_S)
    lost.plug_in()
    time.sleep(SHORT_S)
    again = [told for told in sweep.trained()[before:] if told.x == x and told.host != lost.name]
    sweep.count("lost", len(again), f"{SHORT_S} s without a network cost a host its trial")
    spare = cluster.add_host()
    lost.pull_cable()
    seconds = sweep.seconds_until(first, spare, x=x)
    cluster.note(f"goes on elsewhere {seconds:.0f} s after the cable was pulled")
    sweep.seconds_until(spare)
    lost.plug_in()
    plugged_at = time.monotonic()
    sweep.wait_until(lambda: not lost.has_ray(), 120)
    cluster.note(f"its Ray ended {time.monotonic() - plugged_at:.0f} s after the cable was back, and was started again")
    start_ray(lost, first)
    spare.pull_cable()
    cluster.note(f"another one vanished, and the host that came back trains after {sweep.seconds_until(lost):.0f} s")
    spare.plug_in()  # until then its processes stay
    (sweep.orders / HURRY).touch()
    sweep.check()


def joins_late(cluster: Cluster) -> None:
    """A host that loses its power, and another one that joins then."""
    cluster.add_hosts(2)
    sweep = cluster.begin(trials=4, epochs=100, epoch_s=1)
    assert sweep.wait_for_hosts(2, 120), "both hosts train"
    lost = cluster.hosts[1]
    x = cluster.trial_on(lost)
    lost.end()
    late = cluster.add_host()
    cluster.note(f"trains {sweep.seconds_until(late):.0f} s after it joined")
    sweep.seconds_until(cluster.hosts[0], late, x=x)
    (sweep.orders / HURRY).touch()
    sweep.check()


def bad_line(cluster: Cluster) -> None:
    """Each frame from host to host takes 100 ms, and 1 % of them are lost: half of both on the line of each host."""
    cluster.line = ("50", "0.005")
    cluster.add_hosts(3)
    sweep = cluster.begin(trials=6)
    sweep.check()
    cluster.note(f"{len(sweep.hosts_since(0))} hosts trained")


def notice(cluster: Cluster) -> None:
    """The command is told to end in the middle of an epoch, and the same line goes on; only its host has the folder."""
    cluster.add_hosts(3)
    sweep = cluster.begin(trials=3, epochs=5, epoch_s=10, resume="auto", notice="20")
    assert sweep.wait_for_hosts(3, 120), "all three hosts train"
    told_at = time.monotonic()
    sweep.terminate()
    status = sweep.ended_with(60)
    sweep.count("lost", status != 128 + signal.SIGTERM, f"the command ended with status {status}")
    sweep.count("lost", "3 of 3 running trials saved" not in sweep.printed, "not all trials have saved")
    cluster.note(f"the trials of all three hosts had saved {time.monotonic() - told_at:.0f} s after SIGTERM")
    (sweep.orders / HURRY).touch()
    sweep.start()
    sweep.check()


def s3(cluster: Cluster) -> None:
    """A storage on S3, whose server is on a host without Ray. Another host than that with the command reads it."""
    cluster.add_hosts(3)
    server = cluster.add_host(ray=False)
    server.begin("moto_server", "--host", server.address, "--port", "9000")
    cluster.wait_for_port(server, 9000)
    endpoint = f"http://{server.address}:9000"
    make_bucket = f"import boto3; boto3.client('s3', endpoint_url='{endpoint}').create_bucket(Bucket='{BUCKET}')"
    server.run("python", "-c", make_bucket, **CREDENTIALS)
    variables = {**CREDENTIALS, "AWS_ENDPOINT_URL": endpoint}
    address = f"s3://{BUCKET}/results"
    sweep = cluster.begin(trials=6, storage=address, variables=variables)
    _check_all_train(cluster, sweep)
    shown = cluster.hosts[1].run("python", "-m", "gaudi_tune", "show", f"{address}/{sweep.name}", "--json", **variables)
    done = json.loads(shown)["done"]
    sweep.count("lost", sweep.trials - done, f"another host reads of {done} trials in the store")


CASES: dict[str, Callable[[Cluster], None]] = {
    case.__name__.replace("_", "-"): case
    for case in (
        own_folder, shared_folder, s3, group, group_vanished, sharded_vanished, vanished, joins_late, bad_line, notice,
    )
}  # fmt: skip


def run_case(kind: str) -> Result:
    """Run a case once, and return what came of it."""
    began = time.monotonic()
    print(f"{kind} ...", flush=True)
    with tempfile.TemporaryDirectory(prefix="hosts-", ignore_cleanup_errors=True) as folder:
        cluster = Cluster(Path(folder))
        faults: Counter[str] = Counter()
        with ended_at_exit(cluster.hosts):
            try:
                CASES[kind](cluster)
            except Exception:
                faults["lost"] += 1
                traceback.print_exc()
            finally:
                if hasattr(cluster, "sweep"):
                    cluster.sweep.end()
                    faults += cluster.sweep.faults
                    if faults.total():
                        print(cluster.sweep.printed, flush=True)
    columns = {"seconds": f"{time.monotonic() - began:.0f}", "what it showed": "; ".join(cluster.notes)}
    return Result(kind, 1, faults, columns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked = parsed(parser, CASES, times=1)
    leave_machines_network()
    conclude([run_case(kind) for kind in asked.kinds for _ in range(asked.times)])


if __name__ == "__main__":
    main()
