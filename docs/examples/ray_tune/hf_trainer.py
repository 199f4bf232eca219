"""A script with Hugging Face's Trainer, in the structure of the examples of transformers (run_classification.py).

Source: https://github.com/huggingface/transformers/tree/main/examples/pytorch/text-classification, The HuggingFace Inc.
team, Apache License 2.0. Much shortened. Unlike the original, it trains a small BERT from scratch on scikit-learn's
digits, as 64 tokens each, and needs no pretrained weights, tokenizer or data from the hub.
"""

import numpy as np
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch
from sklearn.datasets import load_digits
from transformers import BertConfig, BertForSequenceClassification, HfArgumentParser, Trainer, TrainingArguments
from transformers import TrainerCallback


class Report(TrainerCallback):
    def on_evaluate(self, args, state, control, metrics, **kwargs):
        tune.report(metrics)


def load_data():
    images, labels = load_digits(return_X_y=True)
    rows = [{"input_ids": x, "label": int(y)} for x, y in zip(images.astype(int), labels, strict=True)]
    return rows[:1400], rows[1400:]


def compute_metrics(p):
    return {"accuracy": float((np.argmax(p.predictions, axis=1) == p.label_ids).mean())}


def main(search):
    parser = HfArgumentParser(TrainingArguments)
    search |= {"num_train_epochs": 10, "eval_strategy": "epoch", "save_strategy": "no"}
    (training_args,) = parser.parse_dict(search)
    train_dataset, eval_dataset = load_data()

    config = BertConfig(
        vocab_size=17,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        num_labels=10,
    )
    model = BertForSequenceClassification(config)

    # Initialize our Trainer
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        compute_metrics=compute_metrics,
        callbacks=[Report()],
    )
    train_result = trainer.train()
    trainer.log_metrics("train", train_result.metrics)
    metrics = trainer.evaluate()
    trainer.log_metrics("eval", metrics)


if __name__ == "__main__":
    space = {"learning_rate": tune.loguniform(1e-4, 1e-2), "per_device_train_batch_size": tune.choice([16, 32, 64])}
    tuner = tune.Tuner(
        main,
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="eval_accuracy",
            mode="max",
            num_samples=20,
            search_alg=OptunaSearch(),
            scheduler=ASHAScheduler(max_t=10, grace_period=1, reduction_factor=3),
        ),
    )
    best = tuner.fit().get_best_result()
    print(best.config, best.metrics["eval_accuracy"])
