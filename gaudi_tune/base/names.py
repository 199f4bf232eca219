"""The names of reported metrics, each defined once for the code that writes it and the code that reads it."""

# Reported by the train loop.
EPOCH = "epoch"
"""Epochs finished, from 1. Where the budget is in epochs: whole, and the time axis of schedulers and of curves."""
STEP = "step"
"""Optimizer steps finished, from 1. Where the budget is in steps, the time axis of schedulers and curves."""
TRAIN_LOSS = "train_loss"
"""Mean training loss since the last report, over all ranks."""
VAL_LOSS = "val_loss"
"""Mean validation loss over all samples."""
TRAIN_ACCURACY = "train_accuracy"
"""Share of training samples classified correctly since the last report, over all ranks."""
VAL_ACCURACY = "val_accuracy"
"""Share of validation samples classified correctly, from 0 to 1."""
VAL_TOP5_ACCURACY = "val_top5_accuracy"
"""Share of validation samples whose label is among the five most probable classes."""
VAL_BALANCED_ACCURACY = "val_balanced_accuracy"
"""Mean recall over the classes, on the validation samples."""
VAL_MACRO_F1 = "val_macro_f1"
"""Mean F1 (the harmonic mean of precision and recall) over the classes, on the validation samples."""
LEARNING_RATE = "lr_now"
"""Learning rate of the last step before the report."""
PEAK_LEARNING_RATE = "lr_peak"
"""Peak learning rate of the trial: the hyperparameter ``lr``, scaled from the batch size that it is meant for to the
trial's batch size."""
SAMPLES_PER_SECOND = "samples_per_s"
"""Training samples per second of all ranks since the last report, not counting compilations and the first step."""
TOKENS_PER_SECOND = "tokens_per_s"
"""Training tokens per second of all ranks since the last report, without padding: ``samples_per_s``, times the mean
number of tokens in a sample."""
TRAIN_SECONDS = "train_s"
"""Seconds spent training since the last report, without ``compile_s``."""
COMPILE_SECONDS = "compile_s"
"""Seconds spent compiling since the last report, in training and evaluation, as torch and the device's software count
them, and seconds spent waiting for another group that compiles the same graph. It includes the extra time of the
trial's first step (loading kernels, filling caches)."""
EVAL_SECONDS = "eval_s"
"""Seconds spent on validation, without compilations."""
FIRST_STEP_AT = "first_step_at"
"""Clock time (seconds since 1970) of the trial's first training step in this process."""
# Added by the worker of rank 0, for any train loop. Counts begin where the trial began in that worker.
GRAPH_COMPILATIONS = "graph_compilations"
"""Graphs compiled, not counting those that came from a cache."""
GRAPH_CACHE_HITS = "graph_cache_hits"
"""Graphs that came from a cache. An HPU counts them where PT_HPU_ENABLE_CACHE_METRICS=1."""
CPU_FALLBACKS = "cpu_fallbacks"
"""Operations that ran on the CPU because the device does not support them. If training is slow, look here first."""
UNCOMPILED = "uncompiled_functions"
"""Functions that ``torch.compile`` has given up on, because they had more than 64 shapes; only if there are any."""
PEAK_MEMORY_GB = "peak_memory_gb"
"""Peak memory of the device that tensors took, in 10^9 bytes."""
UTILIZATION = "device_utilization"
"""Mean utilisation of the device in percent, as its driver counts it, including all waiting between reports."""
DEVICE_COUNTS = (GRAPH_COMPILATIONS, GRAPH_CACHE_HITS, CPU_FALLBACKS, UNCOMPILED, PEAK_MEMORY_GB, UTILIZATION)
"""Every metric that the worker adds."""

CONSTRAINT_PREFIX = "constraint/"
"""The prefix of soft constraints, for example constraint/memory_gb. A value above 0 says by how much it is violated."""

# Added by the trial actor, in one entry of a result; Ray's own parts, whose results are flat, see these names.
OURS = "gaudi_tune"
"""The entry of a result of Tune's that is the sweep's own."""
PREFIX = f"{OURS}/"
"""What the names of that entry's parts begin with."""
SECOND = "gaudi_tune/second"
"""Seconds that the trial has trained and evaluated so far, without starts, compilations and lost work. Where the budget
is in seconds, the time axis of schedulers and curves."""
STEP_SECONDS = "gaudi_tune/step_s"
"""Seconds from Tune's order to train until this report arrived."""
START_SECONDS = "gaudi_tune/start_s"
"""Seconds from Tune's order to train until the trial's first training step. Only the first report has it, and the first
one after workers were lost. For the first trial of a group it includes the start of the workers."""
LOST_SECONDS = "gaudi_tune/lost_s"
"""Seconds lost with workers: until the loss was noticed, and to repeat training that had been reported before."""
DONE = "done"
"""The entry of a report with which a train loop ends its trial, as in Ray Tune."""
UNREAD = "gaudi_tune/unread"
"""The keys of its configuration that the train loop had not read at that report, one a line; absent where it has read
all."""
WORKERS = "gaudi_tune/workers"
"""How many workers train the trial, where it has more than it began with."""
DEVICES = "gaudi_tune/devices"
"""The devices of the trial: the :data:`NODE_DEVICE` of each worker, by rank, separated by blanks."""
NODE_DEVICE = "{node}:{index}"
"""A device: Ray's id of its node, and its number there (for an HPU its module; for a CPU nothing)."""

CONFIRMS = "confirms"
"""The entry of a configuration that names the trial which it confirms, by training it again with another seed."""

NOT_TRAINED = (START_SECONDS, COMPILE_SECONDS, LOST_SECONDS)
"""The metrics that count time in which the trial did not train."""
TIME_METRICS = (START_SECONDS, COMPILE_SECONDS, TRAIN_SECONDS, EVAL_SECONDS, LOST_SECONDS, FIRST_STEP_AT)
"""The metrics from which device time is computed."""

SET_BY_TUNE = frozenset(
    {
        "checkpoint_dir_name", "config", "date", "done", "episodes_total", "experiment_tag", "hostname",
        "iterations_since_restore", "node_ip", "pid", "should_checkpoint", "time_since_restore", "time_this_iter_s",
        "time_total_s", "timestamp", "timesteps_since_restore", "timesteps_total", "training_iteration", "trial_id",
        "__duplicate__",
    }
)  # fmt: skip
"""Entries of a result that Ray Tune sets itself, or with which a train loop would have it end, save or count a trial
behind the sweep's back."""
HYPERPARAMETERS = "config/"
"""The prefix that Ray Tune gives the hyperparameters in a result."""

NOT_OBJECTIVES = frozenset({EPOCH, STEP, *TIME_METRICS, *DEVICE_COUNTS})
"""Entries of a report that a train loop or its worker adds beside what can be optimized."""
NOT_TRACKED = frozenset({FIRST_STEP_AT, STEP_SECONDS, EPOCH, STEP, SECOND})
"""Entries of a report that say nothing about the model, or are the time axis itself."""


def is_reported(name: str) -> bool:
    """Whether an entry of a result is what the train loop reported: not Tune's, not a hyperparameter, not the sweep's.

    >>> [is_reported(name) for name in ("loss", "gaudi_tune/step_s", "training_iteration", "config/lr")]
    [True, False, False, False]
    """
    return name not in SET_BY_TUNE and name != OURS and not name.startswith((PREFIX, HYPERPARAMETERS))


def test_metric(name: str) -> str:
    """Return the name that a validation metric has when it is computed on the test data."""
    return f"test_{name.removeprefix('val_')}"
