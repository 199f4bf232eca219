"""Text classification with BERT: a pretrained encoder with a new head is fine-tuned on labelled text."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gaudi_tune.base.process import no_collection
from gaudi_tune.data.configs import TextConfig
from gaudi_tune.data.facts import check_texts
from gaudi_tune.data.pretrained import check_model, encoder_config
from trainables.attention import AttentionConfig, choose_attention

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from gaudi_tune.recipes.loading import Batch
    from gaudi_tune.recipes.prediction import ClassPredictor

DROPOUT_NAMES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout")
"""Names of dropout probabilities in the families of encoders (BERT and similar ones; DistilBERT and similar ones)."""


@dataclass(frozen=True, kw_only=True)
class BertConfig(TextConfig, AttentionConfig):
    """Hyperparameters and settings of one BERT trial."""

    dropout: float
    """Dropout probability of the encoder."""
    decayed: Literal["all", "weights"] = "weights"
    """What ``weight_decay`` acts on. Devlin et al. 2019 leave out norms and biases; the published run has no decay."""
    train_samples: int = 1000
    """How many training texts are used, beginning with the first. 0 means all."""
    val_samples: int = 1000
    """How many validation texts are used, beginning with the first. 0 means all."""


def train_loop(config: dict[str, Any]) -> None:
    """Train one trial, as an ordinary Ray Train loop. ``config`` has the fields of :class:`BertConfig`."""
    from gaudi_tune.data.text import tokenized
    from gaudi_tune.recipes.loop import train
    from gaudi_tune.recipes.task import Task
    from gaudi_tune.training.fresh_start import fresh_start

    bert = BertConfig.from_dict(config)
    fresh_start(bert.seed)
    with no_collection():
        texts = tokenized(bert)
        model = _classifier(bert, texts.labels)
    choose_attention(model, bert)
    task = Task(
        model=model,
        forward=_logits,
        train_data=texts.split("train", bert.most_shapes),
        val_data=texts.split("val", bert.most_shapes),
        test_data=texts.split("test", bert.most_shapes) if bert.hold_out else None,
        describe=partial(_describe, model, texts.tokenizer),
    )
    train(task, bert)


def check(config: BertConfig) -> list[str]:
    """Check that data and model can be used, prepare the data if this node lacks it, and return lines that describe
    them.

    Raises:
        ValueError: The data or the model cannot be used; the message says why, and what to give instead.
    """
    check_model(config.model)
    facts, family = check_texts(config)
    lengths = f", padded to at most {config.most_shapes} lengths" if config.most_shapes > 1 else ""
    return [*facts, f"model: {config.model}: {family}, {config.max_length} tokens per text{lengths}"]


def load_model(checkpoint: str | Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the trained classifier (in evaluation mode, on the CPU) and its tokenizer from a checkpoint's folder.

    Raises:
        FileNotFoundError: There is no checkpoint in the folder.
    """
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

    from gaudi_tune.training.checkpoint import read_state

    folder = Path(checkpoint)
    state = read_state(folder)
    model = AutoModelForSequenceClassification.from_config(AutoConfig.from_pretrained(folder))
    model.load_state_dict(state["model"])
    return model.eval(), AutoTokenizer.from_pretrained(folder)


def predictor(checkpoint: Path) -> ClassPredictor:
    """Return a predictor of the class of texts. It tokenizes them as validation does.

    Raises:
        FileNotFoundError: There is no checkpoint in the folder.
    """
    import torch

    from gaudi_tune.data.text import encode
    from gaudi_tune.recipes.prediction import PACKAGES, ClassPredictor

    model, tokenizer = load_model(checkpoint)

    def logits(texts: list[str]) -> torch.Tensor:
        encoded = encode(tokenizer, texts)
        return _logits(model, {name: torch.from_numpy(array) for name, array in encoded.items()})

    return ClassPredictor(
        column="text",
        sample="The text whose class is wanted.",
        packages=[*PACKAGES, "transformers"],
        classes=[model.config.id2label[index] for index in range(model.config.num_labels)],
        logits=logits,
    )


def _classifier(config: BertConfig, labels: list[str]) -> PreTrainedModel:
    import torch
    from transformers import AutoModelForSequenceClassification
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    encoder = encoder_config(config.model)
    encoder.id2label = dict(enumerate(labels))
    encoder.label2id = {label: index for index, label in enumerate(labels)}
    for name in DROPOUT_NAMES:
        if hasattr(encoder, name):
            setattr(encoder, name, config.dropout)
    model: PreTrainedModel = AutoModelForSequenceClassification.from_pretrained(
        config.model, config=encoder, torch_dtype=torch.float32
    )
    return model


def _logits(model: nn.Module, batch: Batch) -> torch.Tensor:
    logits: torch.Tensor = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    return logits


def _describe(model: PreTrainedModel, tokenizer: Path, directory: Path) -> None:
    model.config.save_pretrained(directory)
    shutil.copytree(tokenizer, directory, dirs_exist_ok=True)
