"""The names of reported metrics, each defined once for those that write it and those that read it."""

# By the train loop.
EPOCH = "epoch"
"""Epochs finished, from 1: whole where the budget is in epochs, and then the time axis of schedulers and of every
curve."""
STEP = "step"
"""Optimizer steps finished, from 1: the time axis where the budget is in steps."""
TRAIN_LOSS = "train_loss"
"""Mean training loss since the last report, over all ranks."""
VAL_LOSS = "val_loss"
"""Mean validation loss over all samples."""
TRAIN_ACCURACY = "train_accuracy"
"""Share of training samples that the steps since the last report classified right, over all ranks."""
VAL_ACCURACY = "val_accuracy"
"""Share of validation samples classified right, from 0 to 1."""
VAL_TOP5_ACCURACY = "val_top5_accuracy"
"""Share of validation samples whose label is among the five most probable classes."""
VAL_BALANCED_ACCURACY = "val_balanced_accuracy"
"""Mean over the classes of the share of their validation samples that is classified right."""
VAL_MACRO_F1 = "val_macro_f1"
"""Mean over the classes of F1, the harmonic mean of precision and recall, on the validation samples."""
LEARNING_RATE = "lr_now"
"""Learning rate of the last step before the report."""
PEAK_LEARNING_RATE = "lr_peak"
"""Peak learning rate of the trial: the hyperparameter ``lr``, brought from the batch that it is meant for to the
trial's."""
SAMPLES_PER_SECOND = "samples_per_s"
"""Training samples per second of all ranks since the last report, without compilations and the trial's first step."""
LAST_STEP_SAMPLES_PER_SECOND = "last_step_samples_per_s"
"""Likewise, of the last step before the report, when the loaders are full: as some sources measure."""
TRAIN_SECONDS = "train_s"
"""Seconds spent training since the last report, without ``compile_s``."""
COMPILE_SECONDS = "compile_s"
"""Seconds spent compiling since the last report, in training and evaluation, as torch and the device's software count
them, or waiting for another group that compiles the same; and what the trial's first step took longer than the others
besides (kernels, caches)."""
EVAL_SECONDS = "eval_s"
"""Seconds spent on validation, without compilations."""
FIRST_STEP_AT = "first_step_at"
"""Clock time (seconds since 1970) of the trial's first training step in this process."""
# By the worker, for any train loop, of rank 0 and since the trial began in it.
GRAPH_COMPILATIONS = "graph_compilations"
"""Graphs compiled; those that came from a cache are not."""
GRAPH_CACHE_HITS = "graph_cache_hits"
"""Graphs that came from a cache; on an HPU where PT_HPU_ENABLE_CACHE_METRICS=1."""
CPU_FALLBACKS = "cpu_fallbacks"
"""Operations that ran on the CPU since the device has none like it; above 0, look here first."""
PEAK_MEMORY_GB = "peak_memory_gb"
"""Most memory of the device that tensors had, in 10^9 bytes."""
UTILIZATION = "device_utilization"
"""Mean utilisation of the device in percent, as its driver counts it, all waiting between reports included."""
DEVICE_COUNTS = (GRAPH_COMPILATIONS, GRAPH_CACHE_HITS, CPU_FALLBACKS, PEAK_MEMORY_GB, UTILIZATION)
"""All of these."""

CONSTRAINT_PREFIX = "constraint/"
"""Begins the names of soft constraints, for example constraint/memory_gb: above 0 means violated, and by how much."""

# By the trial actor, to account for device time.
SECOND = "second"
"""Seconds that the trial has trained and evaluated so far, without starts, compilations and what was lost: the time
axis where the budget is in seconds."""
STEP_SECONDS = "step_s"
"""Seconds from the order to train to this report until it came in."""
START_SECONDS = "start_s"
"""Seconds from Tune's order to train until the trial's first training step; in its first report only, and in the first
after workers were lost. The first trial of a group has the start of the workers in it."""
LOST_SECONDS = "lost_s"
"""Seconds lost with workers: until the loss was noticed, and to repeat training that had been reported before."""
BEGINS_ANEW = "begins_anew"
"""True where the trial could not be continued: the loop gives nothing to save, or has not asked for its checkpoint."""
WORKERS = "workers"
"""How many workers train the trial, where it has more than it began with."""
DEVICES = "devices"
"""What the trial trains on: a :data:`NODE_DEVICE` of each worker, by rank, separated by blanks."""
NODE_DEVICE = "{node}:{index}"
"""A device: Ray's id of its node, and its number there (an HPU's module); no number for a CPU."""

CONFIRMS = "confirms"
"""Entry of a configuration: the number of the trial that it confirms, trained again with another seed."""

NOT_TRAINED = (START_SECONDS, COMPILE_SECONDS, LOST_SECONDS)
"""The parts of the time until a report in which a trial did not train."""
BOOKED = (START_SECONDS, COMPILE_SECONDS, TRAIN_SECONDS, EVAL_SECONDS, LOST_SECONDS, FIRST_STEP_AT)
"""The parts of a report that device time is counted from."""


def of_test(name: str) -> str:
    """Return the name of a validation metric when it is computed on the test data."""
    return f"test_{name.removeprefix('val_')}"
