"""``gaudi-tune doctor``, the first command for a Gaudi user: it finds what a sweep lacks here, and says what helps.

It checks variables, versions, the modules and the processes that use them, memory, and the HPUs that Ray finds. Then it
multiplies on every HPU and sums over all of them, with one process per HPU, as a sweep does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from gaudi_tune.base.errors import first_line
from gaudi_tune.base.process import version_of
from gaudi_tune.devices import checks, probes
from gaudi_tune.devices.checks import Finding
from gaudi_tune.devices.gaudi_node import MODULES, has_habana
from gaudi_tune.devices.hpu import HPU


def diagnose() -> int:
    """Run all checks, print a table, and return the exit status: 1 if something needs fixing."""
    console = Console(highlight=False)
    with console.status("checking ..."):
        findings = list(examine())
    table = Table("", Column("what", no_wrap=True), "found", "fix", box=None, pad_edge=False)
    for finding in findings:
        mark = "ok" if not finding.fix else "!" if finding.warns else "!!"
        # As Text: rich would read brackets in a command line as markup.
        table.add_row(mark, finding.subject, Text(finding.result), Text(finding.fix))
    console.print(table)
    return 1 if any(finding.fix and not finding.warns for finding in findings) else 0


def examine() -> Iterator[Finding]:
    """Yield the findings, beginning with the host."""
    yield from _checked("versions", checks.versions)
    yield from _checked("/dev/shm", checks.shared_memory)
    if not has_habana():
        yield from _checked("devices", checks.devices)
        fix = "on a Gaudi node: run it in Intel's container"
        yield Finding("Gaudi", "habana is not installed: nothing of a Gaudi was checked", fix, warns=True)
        return
    yield from _checked("variables", checks.variables)
    plugin, torch = version_of("habana-torch-plugin"), version_of("torch")
    yield from _checked("release", partial(checks.release, plugin, torch))
    for subject, check in (
        ("numpy", checks.numpy),
        ("driver", checks.driver),
        ("habana's logs", checks.logs),
        ("compiled graphs", checks.compiled_graphs),
        ("scale-out", checks.scale_out),
    ):
        yield from _checked(subject, check)
    try:
        count = HPU.count_here()
    except Exception as error:
        listed = f"unset {MODULES}, or give the numbers of modules"
        fix = listed if isinstance(error, ValueError) else "run it in Intel's container, of the driver's release"
        yield Finding("HPUs", f"cannot be counted: {first_line(error)}", fix)
        return
    if not count:
        yield Finding("HPUs", "habana is installed but finds none", probes.START_THE_CONTAINER)
        return
    yield from _checked("devices", checks.devices)
    for subject, check_hpus in (
        ("modules", checks.modules),
        ("cores", checks.cores),
        ("hugepages", checks.hugepages),
        ("host memory", checks.memory),
        ("Ray", checks.ray_view),
    ):
        yield from _checked(subject, partial(check_hpus, count))
    yield from _checked("owners", checks.owners)
    yield from _checked("device memory", checks.device_memory)
    yield from _checked("matmul", partial(_computed, checks.modules_here(count)))


def _computed(modules: list[int]) -> Iterator[Finding]:
    failed = [finding for finding in probes.matmuls(modules) if finding.fix]
    yield from failed or [Finding("matmul", f"correct on each of {len(modules)} HPUs")]
    if not failed and len(modules) > 1:
        yield probes.all_reduce(modules)


def _checked(subject: str, check: Callable[[], Finding | Iterable[Finding]]) -> list[Finding]:
    """Return the findings of a check. If it fails itself, that is a finding, and the next checks can run."""
    try:
        result = check()
        return [result] if isinstance(result, Finding) else list(result)
    except Exception as error:
        return [Finding(subject, f"cannot be checked: {first_line(error)}", "look at it by hand", warns=True)]
