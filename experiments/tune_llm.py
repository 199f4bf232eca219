"""Tune the instruction tuning of a language model with LoRA.

full: torchtune's recipe for Llama 3.2 1B Instruct, one epoch of Alpaca, 51,760 conversations; any causal language
model and any chat data with --model and --data. sample: a Llama of two layers that has read the prose of docstrings
learns to say what a parameter of a library is, 3 epochs a trial.
"""

from gaudi_tune import Budget, Experiment, Recipe, main
from gaudi_tune.data.sample_chat import sample_chat, sample_llm
from search_spaces.llm import BASELINE, SAMPLE_BASELINE, sample_space, space
from trainables import llm
from trainables.llm_config import LlmConfig


def full_settings() -> dict[str, object]:
    """Return the settings of the published run: passes of 4 conversations, and a fixed part of the validation data."""
    return {"micro_batch": 4, "val_samples": 1000}


def sample_settings() -> dict[str, object]:
    """Make the data and the model of the sample recipe, and return its settings."""
    small = {"max_length": 64, "packing": True, "eval_batch": 64}
    return {"data": str(sample_chat()), "model": str(sample_llm()), **small}


EXPERIMENT = Experiment(
    name="llm",
    train_loop=llm.train_loop,
    config_class=LlmConfig,
    space=space,
    baseline=BASELINE,
    metric="val_loss",
    recipes={
        "full": Recipe(settings=full_settings, budget=Budget(epochs=1), num_samples=32, confirm=1),
        "sample": Recipe(
            settings=sample_settings,
            budget=Budget(epochs=3),
            num_samples=16,
            confirm=1,
            seeds=3,
            space=sample_space,
            baseline=SAMPLE_BASELINE,
        ),
    },
    check=llm.check,
    load_line='from trainables.llm import load_model; model, tokenizer = load_model("{checkpoint}")',
    predictor=llm.predictor,
    imports=("transformers.modeling_utils", "peft"),
    display_params=("lr", "rank", "batch_size", "schedule"),
    scale_lr=True,
)

if __name__ == "__main__":
    main(EXPERIMENT, __doc__)
