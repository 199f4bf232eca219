"""The stand-in for a Gaudi is as strict as the real thing: each rule is broken on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.deliveries import free_port
from tests.helpers.stand_in_hpu import compilations, fork, forked_output_of

pytestmark = pytest.mark.processes

MIXED = """
import torch
from habana_frameworks.torch.hpex import optimizers as fused
from torch.nn import functional as F
on_hpu, on_cpu, labels = torch.ones(2, 3, device="hpu"), torch.ones(2, 3), torch.zeros(2, dtype=torch.int64)
model = torch.nn.Linear(3, 2).to("hpu")
def says(use):
    try:
        return use()
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
for use in (
    lambda: model(on_cpu),
    lambda: torch.nn.Linear(3, 2)(on_hpu),
    lambda: F.cross_entropy(model(on_hpu), labels),
    lambda: F.embedding(labels, on_hpu),
    lambda: on_hpu.add_(on_cpu),
    lambda: torch.cat([on_cpu, on_hpu]),
    lambda: on_hpu.numpy(),
    lambda: torch.compile(model, backend="hpu_backend", dynamic=False)(on_cpu),
    lambda: fused.FusedSGD(torch.nn.Linear(3, 2).parameters(), lr=0.1).step(),
):
    print(says(use))
print(on_hpu.device, on_hpu.is_cpu, on_hpu[labels].device)
print((on_hpu * torch.tensor(2.0)).sum().item(), on_cpu.copy_(on_hpu).device)
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """What MIXED, STATE, NAMES and TYPES print, in one process."""
    code = "print('next')".join((MIXED, STATE, NAMES, TYPES))
    settings = {"HLS_MODULE_ID": "0", "PYTHONWARNINGS": "ignore", "PT_HPU_GPU_MIGRATION": "true"}
    parts = forked_output_of(code, tmp_path_factory.mktemp("stand-in"), **settings).split("next\n")
    return [part.splitlines() for part in parts]


def test_a_forgotten_move_to_the_device_is_refused(printed: list[list[str]]) -> None:
    """A number (a tensor of no dimension) and indices may come from the CPU, and a copy goes between devices; nothing
    else does."""
    *refused, place, allowed = printed[0]
    assert len(refused) == 9
    for line in refused:
        assert "Error: " in line, line
        assert "device" in line or "hpu" in line.lower(), line
    assert (place, allowed) == ("hpu:0 False hpu:0", "12.0 cpu")


STATE = """
import io, tempfile
from pathlib import Path
from torch import nn
from gaudi_tune.training.checkpoint import write_state
torch.manual_seed(3)
def trained(device):
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 2))
    network.load_state_dict(weights)
    network.to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.1, foreach=False)
    for _ in range(3):
        network(images.to(device)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return network, optimizer
images = torch.randn(5, 1, 6, 6)
weights = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 2)).state_dict()
network, optimizer = trained("hpu")
there, here = network.state_dict(), trained("cpu")[0].state_dict()
moved = nn.Linear(2, 2)
parameter = moved.weight
print(moved.to("hpu").weight is parameter, parameter.device)
print(all(torch.equal(there[name].cpu(), here[name]) for name in here))
file = io.BytesIO()
torch.save({"network": there, "optimizer": optimizer.state_dict()}, file)
for location in (None, "cpu"):
    file.seek(0)
    saved = torch.load(file, map_location=location, weights_only=True)
    network.load_state_dict(saved["network"])
    optimizer.load_state_dict(saved["optimizer"])
    print(saved["network"]["0.weight"].device, network[0].weight.device, *{
        value.device.type for state in optimizer.state.values() for value in state.values() if value.dim()
    })
with torch.autocast("hpu", dtype=torch.bfloat16):
    outputs = network(images.hpu())
    print(outputs.dtype, nn.functional.cross_entropy(outputs, torch.zeros(5, dtype=torch.int64, device="hpu")).dtype)
    print((outputs.float() * 2).dtype, outputs.float().softmax(1).dtype, (outputs / 2).dtype)
with tempfile.TemporaryDirectory() as folder:
    write_state(Path(folder), {"network": there, "optimizer": optimizer.state_dict()})
    saved = torch.load(Path(folder, "state.pt"), weights_only=True)
    parts = [saved["network"], *saved["optimizer"]["state"].values()]
    print({value.device.type for part in parts for value in part.values()})
    network.load_state_dict(saved["network"])
    optimizer.load_state_dict(saved["optimizer"])
"""


def test_tensors_of_an_hpu_train_as_the_cpus_and_are_saved_and_loaded(printed: list[list[str]]) -> None:
    assert printed[1] == [
        "True hpu:0",
        "True",
        "hpu:0 hpu:0 hpu",
        "cpu hpu:0 hpu",
        "torch.bfloat16 torch.float32",
        "torch.bfloat16 torch.bfloat16 torch.float32",
        "{'cpu'}",
    ]


NAMES = """
from habana_frameworks.torch.utils import experimental
torch.manual_seed(1)
first = torch.rand(1, device="hpu")
torch.hpu.manual_seed_all(1)
print(torch.equal(first, torch.rand(1, device="hpu")), says(lambda: torch.hpu.set_device(1)))
stream, event = torch.hpu.current_stream(), torch.hpu.Event()
stream.record_event(event).synchronize()
print(event.query(), torch.hpu.mem_get_info()[1], experimental._get_device_type().name)
batches = torch.utils.data.DataLoader([torch.ones(2), torch.zeros(2)], batch_size=2, pin_memory=True)
print([(batch.is_pinned(), on_cpu.is_pinned(), batch.to("hpu", non_blocking=True).sum().item()) for batch in batches])
"""


def test_other_names_of_habana_do_what_theirs_do(printed: list[list[str]]) -> None:
    assert printed[2] == [
        "True AssertionError: a process has one HPU, of index 0",
        f"True {96 * 2**30} synDeviceGaudi2",
        "[(True, False, 2.0)]",
    ]


TYPES = """
import os
for use in (
    lambda: on_cpu.double().to("hpu"),
    lambda: on_hpu.double(),
    lambda: on_cpu.to(torch.complex64).to("hpu"),
    lambda: on_hpu.half().sum().dtype,
    lambda: os.environ.update(HABANA_STAND_IN_CHIP="GAUDI") or on_hpu.half(),
    lambda: (on_hpu * 2.5 + torch.tensor(1.5, dtype=torch.float64)).dtype,
):
    print(says(use))
"""


def test_types_that_a_gaudi_has_not_are_refused(printed: list[list[str]]) -> None:
    """float16 on the first generation only. A Gaudi takes float64 and computes float32."""
    no_double = "RuntimeError: float64 on an HPU, which would compute it as float32: convert it before"
    assert printed[3] == [
        no_double,
        no_double,
        "RuntimeError: Complex datatype is not supported on HPU device.",
        "torch.float16",
        "RuntimeError: float16/half is not supported on Gaudi.",
        "torch.float32",
    ]


COLLECTIVE = """
import os, torch, torch.distributed as dist, habana_frameworks.torch.distributed.hccl as hccl
from gaudi_tune.recipes.metrics import sum_over_ranks
print(hccl.initialize_distributed_hpu(), flush=True)
dist.init_process_group("hccl")
rank = dist.get_rank()
ones, many = torch.ones(2, device="hpu"), torch.tensor([2**24 + 1], device="hpu")
for tensor, how in ((torch.ones(2), "SUM"), (ones, "AVG"), (ones, "SUM"), (many, "SUM")):
    try:
        dist.all_reduce(tensor, op=getattr(dist.ReduceOp, how))
        print("sum", tensor.tolist(), tensor.device, flush=True)
    except Exception as error:
        print("refused", str(error).splitlines()[0], flush=True)
print(sum_over_ranks(many).tolist())
parts = [torch.zeros(1, device="hpu") for _ in range(2)]
dist.all_gather(parts, torch.full((1,), rank + 5.0, device="hpu"))
both = [None, None]
dist.all_gather_object(both, {"rank": rank})
dist.barrier()
network = torch.nn.Linear(2, 1, bias=False).to("hpu")
torch.nn.init.constant_(network.weight, 1.0 + rank)
parallel = torch.nn.parallel.DistributedDataParallel(network, device_ids=[0], gradient_as_bucket_view=True)
parallel(torch.full((3, 2), 1.0 + rank, device="hpu")).mean().backward()
print(float(sum(parts)), both, network.weight.tolist(), network.weight.grad.tolist(), network.weight.grad.device)
try:
    torch.nn.parallel.DistributedDataParallel(network, device_ids=[torch.device("hpu").index])
except TypeError as error:
    print("refused", str(error).splitlines()[0])
dist.destroy_process_group()
"""


def lines_of_two_ranks(code: str, folder: Path, **more: str) -> list[list[str]]:
    """What each of two ranks prints, which have an HPU each."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", **more}
    ranks = [fork(code, folder, **place, RANK=str(r), LOCAL_RANK=str(r), HLS_MODULE_ID=str(r)) for r in (0, 1)]
    return [process.printed().splitlines() for process in ranks]


def test_hccl_sums_tensors_of_hpus_only(tmp_path: Path) -> None:
    for number, printed in enumerate(lines_of_two_ranks(COLLECTIVE, tmp_path, PYTHONWARNINGS="ignore")):
        lines = [line for line in printed if "Gloo" not in line]
        assert lines[0] == f"(2, {number}, {number})"
        assert lines[1] == "refused No backend type associated with device type cpu"
        assert lines[2] == "refused Unsupported ReduceOp for HCCL process group"
        assert lines[3] == "sum [2.0, 2.0] hpu:0"
        assert lines[4].startswith("refused hccl would sum these integers as float32")
        assert lines[5] == "[33554434]"
        assert lines[6] == "11.0 [{'rank': 0}, {'rank': 1}] [[1.0, 1.0]] [[1.5, 1.5]] hpu:0"
        assert lines[7].startswith("refused set_construction_data_and_log(): incompatible")  # a device without index


PARTS = """
import os
from pathlib import Path
import torch, torch.distributed as dist
from habana_frameworks.torch.distributed import hccl
from gaudi_tune.recipes.sharding import load_optimizer, save_optimizer, shard, trained_weights
torch.set_num_threads(1)
points = torch.linspace(-1, 1, 64).view(16, 4)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))
        self.head = torch.nn.Linear(4, 1)
    def forward(self, x):
        for layer in self.layers:
            x = layer(x).tanh()
        return self.head(x)
def steps(model, optimizer, points, number):
    for _ in range(number):
        optimizer.zero_grad()
        model(points).square().mean().backward()
        optimizer.step()
rank, whole, model = int(os.environ["RANK"]), Net(), Net()
adam = torch.optim.AdamW(whole.parameters(), lr=0.01)
torch.ones(1, device="hpu")
dist.init_process_group("hccl")
shard(model, torch.device("hpu"))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
steps(whole, adam, points, 4)
steps(model, optimizer, points[rank::2].to("hpu"), 2)
save_optimizer(model, optimizer, Path(os.environ["FOLDER"]))
load_optimizer(model, optimizer, Path(os.environ["FOLDER"]))
steps(model, optimizer, points[rank::2].to("hpu"), 2)
for name, weight in trained_weights(model).items():
    torch.testing.assert_close(weight, whole.state_dict()[name], rtol=1e-4, atol=1e-6)
print("equal", len(whole.state_dict()))
dist.destroy_process_group()
"""


def test_a_model_is_sharded_over_two_hpus(tmp_path: Path) -> None:
    for printed in lines_of_two_ranks(PARTS, tmp_path, FOLDER=str(tmp_path / "parts")):
        assert printed[-1] == "equal 6", printed
    written = sorted(file.name for file in (tmp_path / "parts" / "optimizer").iterdir())
    assert written == [".metadata", "__0_0.distcp", "__1_0.distcp"]


RECIPES = """
import importlib
from tests.helpers.sessions import reports_of
from gaudi_tune.recipes.feed import Feed
def step_of(name):
    experiment = importlib.import_module(f"experiments.tune_{name}").EXPERIMENT
    size = {"val_samples": 5, "batch_size": 8} if name == "llm" else {"val_samples": 32, "batch_size": 32}
    small = {"train_samples": 32, "epochs": 1, "seed": 5, "compile": False, "mixed_precision": "off", **size}
    trial = {**experiment.recipes["sample"].settings(), **experiment.for_recipe("sample", 1).baseline, **small}
    known = set(experiment.config_class.field_names())
    try:
        (report,) = reports_of(experiment.train_loop, {key: value for key, value in trial.items() if key in known})
        return report["train_loss"] > 0
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
names = ("bert", "resnet18", "resnet50", "resnet50_imagenet", "vit")
print(*map(step_of, (*names, "llm")))
def forgotten(self, loader, pad_to=0):
    for batch in loader:
        yield (self.task.prepare(batch) if self.task.prepare else batch), len(batch["labels"])
Feed.on_device = forgotten
for name in names:
    print(step_of(name))
"""


def test_every_recipe_trains_on_it_and_none_if_its_batches_stay_on_the_cpu(tmp_path: Path) -> None:
    environment = {"HABANA_VISIBLE_MODULES": "0", "HLS_MODULE_ID": "0", "PT_HPU_LAZY_MODE": "0"}
    trained, *forgotten = forked_output_of(RECIPES, tmp_path, **environment).splitlines()[-6:]  # warnings before
    assert trained == "True True True True True True"
    assert all("RuntimeError" in line and "hpu" in line for line in forgotten), forgotten


@pytest.mark.parametrize(("lazy", "says"), [("0", "mark_step() has no meaning in eager mode"), ("1", "marked")])
def test_steps_are_marked_in_lazy_mode_only(lazy: str, says: str, tmp_path: Path) -> None:
    code = "import habana_frameworks.torch.core as core; core.mark_step(); print('marked')"
    assert says in forked_output_of(code, tmp_path, PT_HPU_LAZY_MODE=lazy)


COMPILED = """
import torch, habana_frameworks.torch
from torch import nn
metric = torch.hpu.metrics.metric_global
def run(samples=8, dropout=0.1, train=True):
    network = nn.Sequential(nn.Linear(4, 2), nn.Dropout(dropout)).to("hpu").train(train)
    torch.compile(network, backend="hpu_backend", dynamic=False)(torch.ones(samples, 4).to("hpu"))
    torch.hpu.synchronize()
for changes in {}, {}, {"samples": 4}, {"dropout": 0.2}, {"train": False}:
    run(**changes)
    print(*dict(metric("graph_compilation").stats()).values())
torch._dynamo.reset()
run()
print(*dict(metric("recipe_cache").stats()).values(), metric("none"))
"""


def test_each_graph_is_compiled_once_in_a_process_and_once_on_a_node(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    settings = {"HLS_MODULE_ID": "0", "HABANA_STAND_IN_COMPILE_S": "0.25", "PT_HPU_ENABLE_CACHE_METRICS": "1"}
    settings["PT_HPU_RECIPE_CACHE_CONFIG"] = f"{tmp_path / 'recipes'},false,100"
    counted = [f"{number} {250_000 * number} 250000.0" for number in (1, 1, 2, 3, 4)]
    assert forked_output_of(COMPILED, tmp_path, **settings).splitlines() == [*counted, "2 4 {} {} None"]
    assert forked_output_of(COMPILED, tmp_path, **settings).splitlines() == [*["0 0 0"] * 5, "6 0 {} {} None"]
    assert len(compilations(tmp_path)) == 4


def test_lazy_mode_compiles_what_was_collected_since_the_last_mark(tmp_path: Path) -> None:
    code = """
import torch, habana_frameworks.torch.core as core
from habana_frameworks.torch.hpex.optimizers import FusedSGD
from torch import nn
def step(samples=8, smoothing=0.0, decay=0.0, lr=0.1, dropout=0.1):
    network = nn.Sequential(nn.Linear(4, 2), nn.Dropout(dropout)).to("hpu")
    optimizer = FusedSGD(network.parameters(), lr=lr, weight_decay=decay)
    labels = torch.zeros(samples, dtype=torch.int64, device="hpu")
    outputs = network(torch.ones(samples, 4, device="hpu"))
    nn.functional.cross_entropy(outputs, labels, label_smoothing=smoothing).backward()
    core.mark_step()
    optimizer.step()
    core.mark_step()
    return dict(torch.hpu.metrics.metric_global("graph_compilation").stats())["TotalNumber"]
changes = [{}, {"lr": 0.2}, {"samples": 4}, {"smoothing": 0.1}, {"dropout": 0.2}, {"decay": 0.1}]
print([step(**change) for change in changes])
"""
    assert forked_output_of(code, tmp_path, HLS_MODULE_ID="0", PT_HPU_LAZY_MODE="1") == "[2, 2, 3, 4, 5, 6]\n"


def test_the_compiler_takes_no_second_shape_as_a_symbol(tmp_path: Path) -> None:
    """Models are compiled as they must be, and the same with torch's own defaults fails where a Gaudi would."""
    code = """
import torch
from gaudi_tune.devices.find import DEVICE_TYPES, worker_device
model = torch.nn.Linear(4, 2).to(worker_device())
model = DEVICE_TYPES["hpu"].compile(model) if {ours} else torch.compile(model, backend="hpu_backend")
for size in (8, 5, 3):
    model(torch.ones(size, 4).to("hpu"))
print("graphs", torch.hpu.metrics.metric_global("graph_compilation").stats()[0][1])
"""
    given = {"HABANA_VISIBLE_MODULES": "6", "HLS_MODULE_ID": "6"}
    assert "graphs 3" in forked_output_of(code.format(ours=True), tmp_path, **given)
    assert "Cannot convert symbols to int" in forked_output_of(code.format(ours=False), tmp_path, **given)


def test_a_lazy_evaluation_is_cut_into_a_graph_a_batch(tmp_path: Path) -> None:
    """Three batches of 64, 64 and 3, each cut behind the model and behind the metrics; training cuts twice a step."""
    code = """
import torch
from tests.helpers.sessions import reports_of
from tests.helpers.small_task import small_loop
reports_of(small_loop, {"steps": 2, "eval_every": 1, "lazy_mode": True})
print("marks", torch.hpu.metrics.metric_global("mark_step").stats()[0][1])
"""
    given = {"HABANA_VISIBLE_MODULES": "6", "HLS_MODULE_ID": "6", "PT_HPU_LAZY_MODE": "1"}
    assert f"marks {2 * 2 + 2 * 2 * 3}" in forked_output_of(code, tmp_path, **given)
