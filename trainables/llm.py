"""Instruction tuning of a causal language model: a LoRA adapter is trained on the answers of conversations.

The base model is frozen, and stays on the device from trial to trial.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaudi_tune.base.process import no_collection
from gaudi_tune.data.pretrained import check_model
from gaudi_tune.recipes.training_config import check_batch
from gaudi_tune.training.session import get_context
from trainables.llm_adapter import read_adapter, with_adapter, write_adapter
from trainables.llm_config import LlmConfig
from trainables.llm_memory import TOKENS_AT_A_TIME

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from peft import PeftModel
    from torch import nn
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from gaudi_tune.recipes.loading import Batch

VAL_PERPLEXITY = "val_perplexity"
"""Perplexity of the held-out answers: e to the power of the mean loss of their tokens."""
NEW_TOKENS = 128
"""Most tokens that the model in MLflow answers with."""


def train_loop(config: dict[str, Any]) -> None:
    """Train one trial, as an ordinary Ray Train loop. ``config`` has the fields of :class:`LlmConfig`."""
    from gaudi_tune.data.chat import chat_data
    from gaudi_tune.recipes.loop import train
    from gaudi_tune.recipes.task import Task
    from gaudi_tune.training.fresh_start import fresh_start

    llm = LlmConfig.from_dict(config)
    fresh_start(llm.seed)
    with no_collection():
        data = chat_data(llm)
        llm.check_memory(llm.memory(data, get_context().get_world_size()))
        model = with_adapter(llm)
    samples = data.split("train", llm)
    task = Task(
        model=model,
        forward=_token_losses,
        train_data=samples,
        val_data=data.split("val", llm),
        test_data=data.split("test", llm) if llm.hold_out else None,
        loss=lambda losses, batch: (losses.sum(), _learned(batch).sum()),
        count=lambda batch: _learned(batch).sum(),
        predict=lambda losses, batch: (losses.sum(dim=1), _learned(batch).sum(dim=1)),
        metrics={VAL_PERPLEXITY: Perplexity},
        describe=partial(write_adapter, model, data.tokenizer, llm.sharding),
        restore=partial(read_adapter, model),
        sharded=llm.sharding == "full",
        tokens_per_sample=float(samples.lengths.mean()),
    )
    train(task, llm)


def check(config: LlmConfig) -> list[str]:
    """Check that data and model can be used, prepare the data if this node lacks it, and return lines that describe
    them.

    Raises:
        ValueError: The data or the model cannot be used, or a trial does not fit a device; the message says why, and
            what to give instead.
    """
    from gaudi_tune.data.chat import chat_data

    check_model(config.model)
    data = chat_data(config)
    check_batch(config, workers=1, samples=data.sizes["train"])
    kind = "packed samples" if config.packing else "conversations"
    parts = [f"{size} {kind} of {split}" for split, size in data.sizes.items()]
    share = data.answer_tokens["train"] / data.tokens["train"]
    sharded = config.sharding == "full"
    needs = [config.memory(data, width) for width in ((2, 4, 8) if sharded else (1,))]
    need, of_each = needs[-1], ", ".join(f"{need.total / 1e9:.2f}" for need in needs)
    memory = f"about {of_each} GB of a device with 2, 4, 8 workers a trial" if sharded else need
    samples = "" if sharded else f"{config.samples_at_once(1)} "  # several widths have several numbers
    batch = f"{samples}samples of {data.most_tokens(config)} tokens at once, rank {config.rank}"
    lines = [
        f"data: {config.data}: {', '.join(parts)}; {data.tokens['train']} tokens to train on, {share:.0%} in answers",
        *(f"data: {note}" for note in data.notes),
        f"model: {config.model}: {data.model['model_type']}, {need.parameters / 1e6:.4g} million parameters, "
        f"{config.max_length} tokens at most",
        f"memory: {memory}, with {batch}",
    ]
    config.check_memory(need)
    return lines


def load_model(
    checkpoint: str | Path, *, base: str | None = None, merge: bool = False
) -> tuple[PreTrainedModel | PeftModel, PreTrainedTokenizerBase]:
    """Return the model with its adapter (in evaluation mode, on the CPU) and its tokenizer from a checkpoint's folder.

    Args:
        checkpoint: The folder.
        base: The base model, where it is no longer where it was in training.
        merge: Whether to add the adapter to the weights, and return a plain model of transformers. Its
            ``save_pretrained`` writes a folder that needs no peft.

    Raises:
        FileNotFoundError: There is no checkpoint in the folder.
    """
    from peft import PeftConfig, PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = Path(checkpoint)
    if not (folder / "adapter_config.json").is_file():
        raise FileNotFoundError(f"no checkpoint in {folder}: adapter_config.json is missing")
    source = base or PeftConfig.from_pretrained(str(folder)).base_model_name_or_path
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(source, torch_dtype="auto"), folder)
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder)
    return (model.merge_and_unload() if merge else model).eval(), tokenizer


@dataclass(frozen=True)
class Answers:
    """A trained model that answers questions."""

    model: PreTrainedModel | PeftModel
    tokenizer: PreTrainedTokenizerBase
    packages: tuple[str, ...] = ("filelock", "numpy", "pandas", "pydantic", "torch", "transformers", "peft")
    """Packages that must be installed to load it, by their names in pip."""

    @property
    def example(self) -> pd.DataFrame:
        """A row of input."""
        import pandas as pd

        return pd.DataFrame({"prompt": ["What is learning_rate in sklearn?"]})

    def predict(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return a row with the ``answer`` to each row's prompt, the most probable token after the other.

        Raises:
            ValueError: The table's first column has another name.
        """
        import pandas as pd
        import torch

        name = table.columns[0]
        if name not in ("prompt", 0):  # MLflow turns a list into column 0
            raise ValueError(f"the (first) column must be 'prompt', but it is {name!r}")
        ends = self.model.generation_config.eos_token_id  # such as that of a turn, beside that of a text
        ends = [self.tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends] if ends is not None else [])]
        answers = []
        for prompt in table[name]:
            text = str(prompt)
            if self.tokenizer.chat_template is not None:  # it is that of the training, or there was none
                chat = [{"role": "user", "content": text}]
                text = self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
            inputs = self.tokenizer(
                text, return_tensors="pt", add_special_tokens=self.tokenizer.chat_template is None,
                return_token_type_ids=False,
            )  # fmt: skip
            with torch.inference_mode():
                tokens = self.model.generate(
                    **inputs, max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=ends,
                    pad_token_id=self.tokenizer.pad_token_id or self.tokenizer.eos_token_id,
                )  # fmt: skip
            new = tokens[0, inputs["input_ids"].shape[1] :]
            answers.append(self.tokenizer.decode(new, skip_special_tokens=True))
        return pd.DataFrame({"answer": answers}, index=table.index)


def predictor(checkpoint: Path) -> Answers:
    """Return a model that generates text, with its adapter.

    Raises:
        FileNotFoundError: There is no checkpoint in the folder.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()  # at the end of a sweep it would stand in the middle of the result
    return Answers(*load_model(checkpoint))


class Perplexity:
    """A metric of losses, summed for each sample, and of the numbers of their tokens."""

    def compute(self, predictions: torch.Tensor, references: torch.Tensor) -> dict[str, float]:
        """Return e to the power of the mean loss. The tensors are on the host, which has float64."""
        return {"perplexity": float((predictions.double().sum() / references.sum()).exp())}


def _token_losses(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Return the loss of each token that is learned, in float32, and 0 for the others: of shape (n, length - 1)."""
    import torch
    from torch.utils.checkpoint import checkpoint

    inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
    logits = model(**inputs, use_cache=False).logits[:, :-1]
    labels = batch["labels"][:, 1:]
    parts = zip(logits.flatten(0, 1).split(TOKENS_AT_A_TIME), labels.flatten().split(TOKENS_AT_A_TIME), strict=True)
    # In float32, as a Gaudi would compute it in bfloat16 within autocast. Some tokens at a time, and again in the
    # backward pass: the logits of all tokens in float32 may take more memory than the model.
    with torch.autocast(logits.device.type, enabled=False):
        losses = [checkpoint(_cross_entropy, *part, use_reentrant=False, preserve_rng_state=False) for part in parts]
    return torch.cat(losses).view(labels.shape)


def _cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    import torch.nn.functional as F  # noqa: N812

    from gaudi_tune.data.packed_texts import IGNORED

    return F.cross_entropy(logits.float(), labels, reduction="none", ignore_index=IGNORED)


def _learned(batch: Batch) -> torch.Tensor:
    from gaudi_tune.data.packed_texts import IGNORED

    return batch["labels"][:, 1:] != IGNORED
