"""A sweep of TRL's SFTTrainer on a small Llama with an adapter: texts of one length."""

from __future__ import annotations

from typing import Any

from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer  # type: ignore[import-not-found,attr-defined,unused-ignore]

from gaudi_tune import Experiment, main, tune
from gaudi_tune.integrations.hugging_face import ReportCallback

WORDS = ("<pad>", "<end>", "up", "down", "left", "right")


def train(config: dict[str, Any]) -> None:
    """Tune an adapter."""
    words = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<end>"))
    words.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<end>")
    texts = Dataset.from_dict({"text": [" ".join(WORDS[2 + (turn + i) % 4] for i in range(15)) for turn in range(64)]})
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    trainer = SFTTrainer(
        model=LlamaForCausalLM(LlamaConfig(vocab_size=len(WORDS), max_position_embeddings=16, **sizes)),
        args=SFTConfig(
            output_dir="sft", num_train_epochs=config["epochs"], learning_rate=config["lr"], max_length=16,
            per_device_train_batch_size=4, eval_strategy="epoch", save_strategy="no", report_to="none",
            optim="adamw_torch", bf16=True, dataloader_drop_last=True, dataloader_pin_memory=False,
        ),
        train_dataset=texts,
        eval_dataset=texts.select(range(32)),  # four batches of eight: a part of one would be dropped
        processing_class=tokenizer,
        peft_config=LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj", "v_proj"]),
        callbacks=[ReportCallback()],
    )  # fmt: skip
    trainer.train()


if __name__ == "__main__":
    space = {"lr": tune.loguniform(1e-4, 1e-1)}
    main(Experiment(train_loop=train, space=space, metric="eval_loss", mode="min"))
