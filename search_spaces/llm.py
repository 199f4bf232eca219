"""The search space of LoRA adapters for language models, and the published hyperparameters."""

from collections.abc import Sequence
from functools import partial

from optuna import Trial


def space(
    trial: Trial,
    ranks: Sequence[int] = (8, 16, 32, 64),
    batch_sizes: Sequence[int] = (16, 32, 64),
    adamw_lr: tuple[float, float] = (3e-5, 3e-3),
) -> None:
    """Suggest the hyperparameters."""
    # A tenth to ten times the published 3e-4. In LoRA Without Regret (Schulman et al. 2025), the best rates are ten
    # times those of full fine-tuning and hardly depend on the rank; QLoRA (Dettmers et al. 2023) has 1e-4 to 2e-4.
    optimizer = trial.suggest_categorical("optimizer", ["adamw"])
    if optimizer == "sgd":  # --set optimizer=sgd; no recipe trains adapters with it, whose second matrix begins at 0
        trial.suggest_float("sgd.lr", 1e-3, 1.0, log=True)
        trial.suggest_categorical("momentum", [0.8, 0.9, 0.95, 0.98])
        trial.suggest_categorical("sgd.weight_decay", [0.0, 1e-5, 1e-4, 1e-3])
    else:
        trial.suggest_float("adamw.lr", *adamw_lr, log=True)
        # None, as in QLoRA, or around the published 0.01.
        trial.suggest_categorical("adamw.weight_decay", [0.0, 0.01, 0.1])
    # PEFT's default is 8; the published run has 64. A larger one is needed only where there is more to learn than an
    # adapter holds (LoRA Without Regret). Few values, since each one compiles another graph.
    trial.suggest_categorical("rank", ranks)
    # Alpha is twice the rank in the published run, PEFT's examples and most recipes, and a quarter of it in QLoRA.
    trial.suggest_categorical("alpha_ratio", [0.25, 0.5, 1.0, 2.0, 4.0])
    # Hu et al. (2022) adapt attention alone; QLoRA and LoRA Without Regret find that all layers are better.
    trial.suggest_categorical("target", ["all", "attention"])
    # None as published, and up to QLoRA's 0.1 for 7B. Values above 0 share graphs.
    trial.suggest_categorical("dropout", [0.0, 0.05, 0.1])
    # Around the published 32: adapters tolerate large batches less than full fine-tuning (LoRA Without Regret).
    trial.suggest_categorical("batch_size", batch_sizes)
    # Cosine as published, or constant as in QLoRA.
    trial.suggest_categorical("schedule", ["cosine", "constant", "linear"])
    # 100 of 1,617 steps are published; QLoRA has 0.03.
    trial.suggest_float("warmup", 0.0, 0.1)


BASELINE = {
    "lr": 3e-4,
    "batch_size": 32,
    "optimizer": "adamw",
    "weight_decay": 0.01,
    "rank": 64,
    "alpha_ratio": 2.0,
    "target": "all",
    "dropout": 0.0,
    "schedule": "cosine",
    "warmup": 100 / 1617,
}
"""The values of torchtune's recipe ``llama3_2/1B_lora_single_device``, with 100 steps of warm-up of 1,617."""

# A model of 0.35 million parameters learns with larger rates, and a rank of 64 would be nearly all of it. In batches of
# 8 at rank 16, a peak of 0.01 learned well with an alpha ratio of 2 and 0.03 diverged; with 0.25, 0.03 learned as well.
# ``lr`` is twice the peak of a batch of 8.
sample_space = partial(space, ranks=(2, 4, 8, 16), batch_sizes=(8, 16, 32), adamw_lr=(1e-4, 1e-1))
SAMPLE_BASELINE = {**BASELINE, "rank": 8, "batch_size": 32}
"""The same values, but for the rank, which is PEFT's default."""
