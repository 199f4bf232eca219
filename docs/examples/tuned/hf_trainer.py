"""A script with Hugging Face's Trainer, in the structure of the examples of transformers (run_classification.py).

Source: https://github.com/huggingface/transformers/tree/main/examples/pytorch/text-classification, The HuggingFace Inc.
team, Apache License 2.0. Much shortened. Unlike the original, it trains a small BERT from scratch on scikit-learn's
digits, as 64 tokens each, and needs no pretrained weights, tokenizer or data from the hub.
"""

import numpy as np
from gaudi_tune import Experiment, main as tune_main, tune
from sklearn.datasets import load_digits
from gaudi_tune.integrations.hugging_face import ReportCallback
from transformers import BertConfig, BertForSequenceClassification, HfArgumentParser, Trainer, TrainingArguments


def load_data():
    images, labels = load_digits(return_X_y=True)
    rows = [{"input_ids": x, "label": int(y)} for x, y in zip(images.astype(int), labels, strict=True)]
    return rows[:1400], rows[1400:]


def compute_metrics(p):
    return {"accuracy": float((np.argmax(p.predictions, axis=1) == p.label_ids).mean())}


def main(config):
    parser = HfArgumentParser(TrainingArguments)
    config |= {"num_train_epochs": config.pop("epochs"), "eval_strategy": "epoch", "save_strategy": "no"}
    (training_args,) = parser.parse_dict(config, allow_extra_keys=True)
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
        callbacks=[ReportCallback()],
    )
    train_result = trainer.train()
    trainer.log_metrics("train", train_result.metrics)
    metrics = trainer.evaluate()
    trainer.log_metrics("eval", metrics)


if __name__ == "__main__":
    space = {"learning_rate": tune.loguniform(1e-4, 1e-2), "per_device_train_batch_size": tune.choice([16, 32, 64])}
    tune_main(Experiment(train_loop=main, space=space, metric="eval_accuracy"))
