"""Tune BERT for text classification.

full: bert-base-cased on the first 1,000 Yelp reviews, 5 stars, 10 epochs a trial. The published run on 2 HPUs took
3 min 53 s and reported no accuracy. sample: a BERT of 2 layers on sentences of five libraries' docstrings, labelled by
library, 6 epochs a trial; chance is 0.2, the hyperparameters of BERT's own training reach 0.37, the best trial 0.7.
"""

from gaudi_tune import Budget, Experiment, Recipe, main
from gaudi_tune.data.sample_text import sample_bert, sample_text
from search_spaces.bert import BASELINE, SAMPLE_BASELINE, sample_space, space
from trainables import bert


def full_settings() -> dict[str, object]:
    """Return the settings of the full recipe: passes are of the published batch, and share the graphs of one size."""
    return {"micro_batch": 8}


def sample_settings() -> dict[str, object]:
    """Make the data and the model of the sample recipe, and return its settings."""
    data = sample_text()
    small = {"max_length": 40, "padded_lengths": 1, "train_samples": 0, "val_samples": 0}
    return {"data": str(data), "model": str(sample_bert(data)), **small}


EXPERIMENT = Experiment(
    name="bert",
    train_loop=bert.train_loop,
    config_class=bert.BertConfig,
    space=space,
    baseline=BASELINE,
    recipes={
        "full": Recipe(settings=full_settings, budget=Budget(epochs=10), num_samples=32, confirm=1),
        "sample": Recipe(
            settings=sample_settings,
            budget=Budget(epochs=6),
            num_samples=16,
            confirm=1,
            seeds=3,
            space=sample_space,
            baseline=SAMPLE_BASELINE,
        ),
    },
    check=bert.check,
    load_line='from trainables.bert import load_model; model, tokenizer = load_model("{checkpoint}")',
    predictor=bert.predictor,
    imports=("transformers.modeling_utils", "evaluate"),
    display_params=("lr", "optimizer", "batch_size"),
    scale_lr=True,
)

if __name__ == "__main__":
    main(EXPERIMENT, __doc__)
