"""Ways in which a trial can leave something behind in its process, and how the next trial would notice.

The file is run as a user's script would be: its train loop goes to the workers by value.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gaudi_tune import report

IMPORTS = """
import asyncio, atexit, builtins, contextvars, csv, decimal, faulthandler, functools, gc, io, json, locale, logging
import multiprocessing, os, random, resource, signal, socket, ssl, subprocess, sys, tempfile, threading, time
import tracemalloc, warnings
import numpy, pandas, psutil, torch, torch.multiprocessing
"""
CLEAN, NEW_WORKERS, STAYS = "clean", "new workers", "stays"
"""What becomes of something: the next trial does not find it, or gets new workers, or finds it."""


class Way(NamedTuple):
    """Something that a trial leaves."""

    name: str
    leave: str
    """Statements that leave it."""
    look: str
    """An expression whose value the next trial must find as a new process has it."""
    note: str = ""
    """What else there is to say of it."""
    outcome: str = CLEAN
    """What becomes of it."""


PYTHON = (
    Way("environment variables", "os.environ['PL_GLOBAL_SEED'] = '7'; os.environ.pop('HOME')", "sorted(os.environ)"),
    Way("the time zone", "os.environ['TZ'] = 'Asia/Tokyo'; time.tzset()", "time.tzname"),
    Way("files in the current folder", "open('made', 'w').close(); os.makedirs('checkpoints/last')", "os.listdir()"),
    Way("the current folder", "os.chdir('/')", "os.path.dirname(os.getcwd())"),
    Way("the current folder, removed", "os.chdir(tempfile.mkdtemp()); os.rmdir(os.getcwd())",
        "os.path.dirname(os.getcwd())"),
    Way("umask", "os.umask(0o077)", "(os.umask(0o022), os.umask(0o022))[0]", outcome=NEW_WORKERS),
    Way("the locale", "locale.setlocale(locale.LC_ALL, 'C')", "locale.setlocale(locale.LC_ALL)", outcome=NEW_WORKERS),
    Way("`sys.path`", "sys.path.insert(0, '/nowhere')", "sys.path[:]"),
    Way("`sys.argv`", "sys.argv[:] = ['train.py', '--lr', '1']", "'--lr' in sys.argv"),
    Way("import hooks", "sys.meta_path.insert(0, type('Mine', (), {'find_spec': lambda *a: None})())",
        "[type(hook).__name__ for hook in sys.meta_path].count('Mine')", outcome=NEW_WORKERS),
    Way("modules that were barred or replaced",
        "sys.modules['tensorflow'] = None; sys.modules['wandb'] = __import__('unittest.mock').mock.MagicMock()",
        "{'tensorflow', 'wandb'} & set(sys.modules)"),
    Way("the recursion limit", "sys.setrecursionlimit(5000)", "sys.getrecursionlimit()"),
    Way("the switch interval", "sys.setswitchinterval(0.5)", "sys.getswitchinterval()", outcome=NEW_WORKERS),
    Way("the most digits of an int", "sys.set_int_max_str_digits(0)", "sys.get_int_max_str_digits()",
        outcome=NEW_WORKERS),
    Way("`sys.excepthook` and its neighbours",
        "sys.excepthook = threading.excepthook = sys.unraisablehook = sys.displayhook = print",
        "[f is print for f in (sys.excepthook, threading.excepthook, sys.unraisablehook, sys.displayhook)]"),
    Way("tracing and profiling of Python", "sys.settrace(lambda *a: None); threading.setprofile(lambda *a: None)",
        "(sys.gettrace(), threading.getprofile())", outcome=NEW_WORKERS),
    Way("a replaced `sys.stdout`", "sys.stdout = io.StringIO()", "type(sys.stdout).__name__"),
    Way("a closed `sys.stdout`", "sys.stdout.close()", "(sys.stdout.closed, os.fstat(1).st_mode)", outcome=NEW_WORKERS),
    Way("a redirected file descriptor", "os.dup2(os.open(os.devnull, os.O_WRONLY), 2)",
        "os.readlink('/proc/self/fd/2') == os.devnull", outcome=NEW_WORKERS),
    Way("functions of Python that were replaced", "time.time = lambda: 0.0; builtins.print = lambda *a, **k: None",
        "(time.time() > 1, type(print).__name__)", outcome=NEW_WORKERS),
    Way("garbage collection turned off", "gc.disable()", "gc.isenabled()"),
    Way("thresholds of garbage collection", "gc.set_threshold(1)", "gc.get_threshold()", outcome=NEW_WORKERS),
    Way("callbacks of garbage collection", "gc.callbacks.append(lambda *a: None)", "len(gc.callbacks)",
        outcome=NEW_WORKERS),
    Way("the decimal context", "decimal.getcontext().prec = 3; decimal.DefaultContext.prec = 4",
        "(decimal.getcontext().prec, decimal.DefaultContext.prec)", outcome=NEW_WORKERS),
    Way("context variables", "contextvars.ContextVar('mine').set(1)",
        "sorted(v.name for v in contextvars.copy_context() if v.name == 'mine')"),
    Way("the default timeout of sockets", "socket.setdefaulttimeout(3)", "socket.getdefaulttimeout()",
        outcome=NEW_WORKERS),
    Way("unchecked HTTPS", "ssl._create_default_https_context = ssl._create_unverified_context",
        "ssl._create_default_https_context.__name__"),
    Way("the limit of a CSV field", "csv.field_size_limit(10)", "csv.field_size_limit()", outcome=NEW_WORKERS),
    Way("the folder of temporary files", "tempfile.tempdir = '/var/tmp'", "tempfile.gettempdir()"),
    Way("memory tracing", "tracemalloc.start()", "tracemalloc.is_tracing()", outcome=NEW_WORKERS),
    Way("a fault handler turned off", "faulthandler.disable()", "faulthandler.is_enabled()", outcome=NEW_WORKERS),
    Way("the soft limit of open files", "resource.setrlimit(resource.RLIMIT_NOFILE, (600, resource.getrlimit(7)[1]))",
        "resource.getrlimit(resource.RLIMIT_NOFILE)", outcome=NEW_WORKERS),
    Way("the cores that may be used", "os.sched_setaffinity(0, {0})", "sorted(os.sched_getaffinity(0))"),
    Way("blocked signals", "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})",
        "sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))", outcome=NEW_WORKERS),
    Way("alarms and timers", "signal.setitimer(signal.ITIMER_REAL, 100)", "signal.getitimer(signal.ITIMER_REAL)",
        outcome=NEW_WORKERS),
    Way("the start method of multiprocessing", "multiprocessing.set_start_method('spawn')",
        "multiprocessing.get_start_method(allow_none=True)"),
    Way("the event loop and its policy", "asyncio.set_event_loop(asyncio.new_event_loop())",
        "asyncio.get_event_loop_policy()._local._loop is None", outcome=NEW_WORKERS),
    Way("warning filters", "warnings.simplefilter('error')", "[f[0] for f in warnings.filters].count('error')"),
    Way("global variables of the script", "global kept; kept = 1", "'kept' in globals()"),
    Way("attributes of the script's classes", "Way.extra = 1", "hasattr(Way, 'extra')"),
    Way("functions for the end of the process (`atexit`)",
        "atexit.register(lambda: setattr(sys.modules['json'], 'exits', getattr(sys.modules['json'], 'exits', 0) + 1))",
        "sys.modules['json'].__dict__.pop('exits', 0) in (0, 1)", "They run when the trial ends."),
    Way("the random generators", "random.seed(1); numpy.random.seed(1); torch.manual_seed(1)",
        "(random.random(), numpy.random.rand(), torch.rand(()).item())", "Each trial begins with its own seed."),
)  # fmt: skip
LOGGING = (
    Way("the root logger's level and handlers", "logging.basicConfig(level=logging.DEBUG, force=True)",
        "(logging.root.level, len(logging.root.handlers))"),
    Way("a file that logs", "logging.getLogger('train').addHandler(logging.FileHandler(tempfile.mktemp()))",
        "len(logging.getLogger('train').handlers)"),
    Way("levels of libraries' loggers", "logging.getLogger('torch').setLevel(logging.CRITICAL)",
        "logging.getLogger('torch').level"),
    Way("`logging.disable()` and captured warnings", "logging.disable(); logging.captureWarnings(True)",
        "(logging.root.manager.disable, warnings.showwarning.__module__)"),
)  # fmt: skip
TORCH = (
    Way("the default type", "torch.set_default_dtype(torch.float64)", "torch.get_default_dtype()"),
    Way("the default device", "torch.set_default_device('meta')", "torch.ones(1).device"),
    Way("a mode that was entered", "torch.device('meta').__enter__()", "torch.ones(1).device", outcome=NEW_WORKERS),
    Way("grad mode and inference mode", "torch.set_grad_enabled(False); torch.inference_mode().__enter__()",
        "(torch.is_grad_enabled(), torch.is_inference_mode_enabled())"),
    Way("autocast", "torch.set_autocast_enabled('cpu', True); torch.set_autocast_cache_enabled(False)",
        "(torch.is_autocast_enabled('cpu'), torch.is_autocast_cache_enabled())", outcome=NEW_WORKERS),
    Way("deterministic algorithms", "torch.use_deterministic_algorithms(True)",
        "torch.are_deterministic_algorithms_enabled()"),
    Way("anomaly detection", "torch.autograd.set_detect_anomaly(True)", "torch.is_anomaly_enabled()"),
    Way("the number of threads", "torch.set_num_threads(3)", "torch.get_num_threads()"),
    Way("the precision of matrix products", "torch.set_float32_matmul_precision('medium')",
        "(torch.get_float32_matmul_precision(), torch.backends.mkldnn.matmul.fp32_precision)"),
    Way("TF32 of cuDNN and matrix products",
        "torch.backends.cudnn.allow_tf32 = False; torch.backends.cuda.matmul.allow_tf32 = True",
        "(torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32)"),
    Way("attention kernels", "torch.backends.cuda.enable_math_sdp(False); torch.backends.cuda.enable_flash_sdp(False)",
        "(torch.backends.cuda.math_sdp_enabled(), torch.backends.cuda.flash_sdp_enabled())"),
    Way("flags of cuDNN", "torch.backends.cudnn.benchmark = True; torch.backends.cudnn.enabled = False",
        "(torch.backends.cudnn.benchmark, torch.backends.cudnn.enabled)"),
    Way("flushed denormals", "torch.set_flush_denormal(True)",
        "(torch.tensor([1e-310], dtype=torch.float64) * 1).item()"),
    Way("the sharing strategy", "torch.multiprocessing.set_sharing_strategy('file_system')",
        "torch.multiprocessing.get_sharing_strategy()"),
    Way("how tensors are printed", "torch.set_printoptions(precision=1)", "str(torch.tensor(1 / 3))"),
    Way("hooks of all modules", "torch.nn.modules.module.register_module_forward_hook(lambda *a: a[2] * 0)",
        "torch.nn.Identity()(torch.ones(1)).item()", outcome=NEW_WORKERS),
    Way("hooks of all optimizers",
        "sys.modules['torch.optim.optimizer'].register_optimizer_step_pre_hook(lambda *a: None)",
        "len(sys.modules['torch.optim.optimizer']._global_optimizer_pre_hooks)", outcome=NEW_WORKERS),
    Way("hooks for saved tensors", "torch.autograd.graph.saved_tensors_hooks(lambda x: x * 0, lambda x: x).__enter__()",
        "torch.autograd.grad((w := torch.ones(1, requires_grad=True)) * w, w)[0].item()", outcome=NEW_WORKERS),
    Way("types that `torch.load()` trusts", "torch.serialization.add_safe_globals([Way])",
        "len(torch.serialization.get_safe_globals())", outcome=NEW_WORKERS),
    Way("checks of distributions", "torch.distributions.Distribution.set_default_validate_args(False)",
        "torch.distributions.Distribution._validate_args"),
    Way("functions of torch that were replaced",
        "torch.nn.functional.relu = lambda x, *a: x * 0; torch.nn.Linear.forward = lambda self, x: x * 0; "
        "torch.load = functools.partial(torch.load, weights_only=False)",
        "(torch.nn.functional.relu(torch.ones(1)).item(), type(torch.load).__name__, "
        "torch.nn.Linear.forward.__module__)", outcome=NEW_WORKERS),
)  # fmt: skip
LIBRARIES = (
    Way("NumPy's errors", "numpy.seterr(all='raise')", "numpy.geterr()"),
    Way("how NumPy prints", "numpy.set_printoptions(precision=1)", "str(numpy.array([1 / 3]))"),
    Way("options of pandas", "pandas.set_option('display.max_rows', 3)", "pandas.get_option('display.max_rows')"),
    Way("settings and figures of matplotlib",
        "import matplotlib.pyplot as plt; plt.rcParams['lines.linewidth'] = 9; plt.figure(); plt.switch_backend('svg')",
        "(plt.rcParams['lines.linewidth'], plt.get_fignums(), plt.get_backend()) "
        "if (plt := __import__('matplotlib.pyplot').pyplot) else 0"),
    Way("verbosity of transformers", "import transformers.utils.logging as t; t.set_verbosity_error()",
        "__import__('transformers').utils.logging.get_verbosity()"),
    Way("progress bars of transformers", "import transformers.utils.logging as t; t.disable_progress_bar()",
        "__import__('transformers').utils.logging.is_progress_bar_enabled()"),
    Way("progress bars and caching of datasets",
        "import datasets; datasets.disable_progress_bars(); datasets.disable_caching()",
        "(d.are_progress_bars_disabled(), d.is_caching_enabled()) if (d := __import__('datasets')) else 0"),
    Way("the state of accelerate", "import accelerate; accelerate.Accelerator(mixed_precision='bf16')",
        "sys.modules['accelerate.state'].AcceleratorState._shared_state == {} if 'accelerate.state' in sys.modules "
        "else True"),
    Way("settings of scikit-learn", "import sklearn; sklearn.set_config(assume_finite=True)",
        "__import__('sklearn').get_config()['assume_finite']", outcome=NEW_WORKERS),
    Way("truncated and large images of Pillow", "import PIL.ImageFile; PIL.ImageFile.LOAD_TRUNCATED_IMAGES = True",
        "__import__('PIL.ImageFile').ImageFile.LOAD_TRUNCATED_IMAGES"),
    Way("a run of MLflow, and its address",
        "import mlflow; mlflow.set_tracking_uri('sqlite:///' + tempfile.mkdtemp() + '/m.db'); mlflow.start_run()",
        "(m.active_run(), m.get_tracking_uri().startswith('sqlite:////tmp')) if (m := __import__('mlflow')) else 0"),
    Way("MLflow's automatic logging", "import mlflow; mlflow.autolog()",
        "__import__('mlflow.utils').utils.autologging_utils.get_autologging_config('torch', 'disable')",
        outcome=NEW_WORKERS),
    Way("a compiled model", "torch.compile(torch.nn.Linear(2, 2), backend='aot_eager')(torch.ones(1, 2))", "0"),
    Way("a trainer of Lightning", "import lightning; lightning.Trainer(logger=False, accelerator='cpu')", "0"),
    Way("an open writer of TensorBoard",
        "import tensorboardX; tensorboardX.SummaryWriter(tempfile.mkdtemp()).add_scalar('loss', 1.0)",
        "[t.name for t in threading.enumerate() if 'tensorboard' in type(t).__module__]"),
)  # fmt: skip
STARTED = (
    Way("a thread that works", "threading.Thread(target=endless, name='endless').start()",
        "[t.name for t in threading.enumerate() if t.name == 'endless']", outcome=NEW_WORKERS),
    Way("a server in a thread",
        "import http.server as h; s = h.HTTPServer(('127.0.0.1', 0), h.BaseHTTPRequestHandler); "
        "threading.Thread(target=s.serve_forever, name='serves').start()",
        "[t.name for t in threading.enumerate() if t.name == 'serves']", outcome=NEW_WORKERS),
    Way("a timer", "threading.Timer(100, endless).start()",
        "[t for t in threading.enumerate() if isinstance(t, threading.Timer)]", outcome=NEW_WORKERS),
    Way("child processes", "subprocess.Popen(['sleep', '321']); subprocess.Popen(['sleep', '321'])",
        "[c.pid for c in psutil.Process().children() if '321' in c.cmdline()]", outcome=NEW_WORKERS),
    Way("processes of multiprocessing, also one that ignores SIGTERM",
        "[multiprocessing.get_context('fork').Process(target=sleep, args=(deaf,)).start() for deaf in (False, True)]",
        "len(multiprocessing.active_children())", outcome=NEW_WORKERS),
    Way("300 open files", "global opened; opened = [open(os.devnull) for _ in range(300)]",
        "len(os.listdir('/proc/self/fd')) > 300"),
    Way("open file descriptors", "[os.open('/etc/hostname', os.O_RDONLY) for _ in range(100)]",
        "sum(os.path.realpath(f'/proc/self/fd/{n}') == '/etc/hostname' for n in os.listdir('/proc/self/fd'))",
        outcome=NEW_WORKERS),
    Way("memory", "global hoard; hoard = torch.ones(2**25)", "psutil.Process().memory_info().rss > 2**32"),
)  # fmt: skip
ONCE = (
    Way("operators (`torch.library.define`)", "torch.library.define('mine::twice', '(Tensor x) -> Tensor')",
        "hasattr(torch.ops.mine, 'twice')", outcome=NEW_WORKERS),
    Way("a library of operators (`torch.library.Library`)",
        "global library; library = torch.library.Library('ours', 'DEF'); library.define('half(Tensor x) -> Tensor'); "
        "library.impl('half', lambda x: x / 2, 'CPU')", "hasattr(torch.ops.ours, 'half')",
        "torch does not free its functions, nor what the global variables of their module hold.", NEW_WORKERS),
    Way("counters of Prometheus", "import prometheus_client; prometheus_client.Counter('steps', 'Steps')",
        "len(__import__('prometheus_client').REGISTRY._collector_to_names)", outcome=NEW_WORKERS),
    Way("the number of interop threads", "torch.set_num_interop_threads(1)", "torch.get_num_interop_threads() == 1",
        outcome=NEW_WORKERS),
    Way("what can be registered once", "register_once()", "0",
        "Such as an operator. The next trial fails where it registers it again, and is tried again on new ones.",
        NEW_WORKERS),
)  # fmt: skip
LEFT = (
    Way("variables of installed modules, also of those installed with `--editable`", "json.mine = 1",
        "hasattr(json, 'mine')", "But a trial that replaces a function of Python's usual modules, NumPy, pandas, torch "
        "or torchvision gives the next one new workers.", STAYS),
    Way("installed modules that were imported", "import wave", "'wave' in sys.modules",
        "They are not imported again.", STAYS),
    Way("a process that has detached itself", "subprocess.run('setsid sleep 4321 & exit', shell=True)",
        "[p.pid for p in psutil.process_iter(['cmdline']) if '4321' in (p.info['cmdline'] or ())] != []",
        "It is no longer a child of the worker.", STAYS),
)  # fmt: skip
SECTIONS = {
    "Python and the process": PYTHON,
    "Logging": LOGGING,
    "torch": TORCH,
    "Other libraries": LIBRARIES,
    "What a trial has started and not ended": STARTED,
    "What a process can do once": ONCE,
    "What stays": LEFT,
}


def endless() -> None:
    """Run until somebody ends this thread."""
    while True:
        time.sleep(0.01)  # type: ignore[name-defined]  # noqa: F821


def sleep(deaf: bool) -> None:
    """Sleep long, and perhaps ignore a request to end."""
    if deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # type: ignore[name-defined]  # noqa: F821
    time.sleep(99)  # type: ignore[name-defined]  # noqa: F821


def register_once() -> None:
    """Put a name into a registry of an installed module."""
    names = vars(sys.modules["json"]).setdefault("names", [])  # type: ignore[name-defined]  # noqa: F821
    if names:
        raise ValueError("the name is registered already")
    names.append("mine")


def train() -> str:
    """Return every bit of the loss of a small network after a few steps."""
    network = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Dropout(), torch.nn.Linear(16, 1))  # type: ignore[name-defined]  # noqa: F821
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)  # type: ignore[name-defined]  # noqa: F821
    for _ in range(20):
        loss = network(torch.randn(32, 16)).square().mean()  # type: ignore[name-defined]  # noqa: F821
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return str(loss.item().hex())


def train_loop(config: dict[str, Any]) -> None:
    """Leave something, and report what is found of what an earlier trial may have left."""
    exec(IMPORTS, globals())
    script = {
        **globals(),
        "Way": Way,
        "endless": endless,
        "sleep": sleep,
        "register_once": register_once,
        "train": train,
    }
    globals().update(script)
    found = {}
    for name, look in config["look"].items():
        found[name] = repr(eval(compile(look, "ways.py", "eval"), globals()))
    found["trained"] = train()
    for leave in config["leave"]:
        exec(compile(leave, "ways.py", "exec"), globals())
    report({"loss": 0.0, "worker_pid": os.getpid(), **found})  # type: ignore[name-defined]  # noqa: F821
