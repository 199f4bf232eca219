"""A LoRA adapter for a language model that a YAML file describes, as axolotl's users write it.

The file has keys of https://github.com/axolotl-ai-cloud/axolotl/blob/main/examples/llama-3/lora-1b.yml, Apache License
2.0. The script is no part of axolotl: it reads these keys and trains with the Trainer of transformers and with peft.
"""

from pathlib import Path

import yaml
from datasets import load_dataset
from gaudi_tune.data.sample_chat import sample_chat, sample_llm
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

CONFIG = Path(__file__).parents[1] / "lora.yml"


def load_data(cfg, tokenizer):
    def encode(row):
        chat = [{"role": "user", "content": row["instruction"]}, {"role": "assistant", "content": row["output"]}]
        prompt = tokenizer.apply_chat_template(chat[:1], add_generation_prompt=True, return_dict=False)
        ids = tokenizer.apply_chat_template(chat, return_dict=False)[: cfg["sequence_len"]]
        return {"input_ids": ids, "labels": ([-100] * len(prompt) + ids[len(prompt) :])[: len(ids)]}

    return load_dataset(cfg["dataset"] or str(sample_chat())).map(encode, remove_columns=["instruction", "output"])


def train(cfg):
    base = cfg["base_model"] or str(sample_llm())
    tokenizer = AutoTokenizer.from_pretrained(base)
    dataset = load_data(cfg, tokenizer)
    adapter = LoraConfig(
        r=cfg["lora_r"],
        lora_alpha=cfg["lora_alpha"],
        lora_dropout=cfg["lora_dropout"],
        target_modules=cfg["lora_target_modules"],
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), adapter)
    args = TrainingArguments(
        output_dir=cfg["output_dir"],
        per_device_train_batch_size=cfg["micro_batch_size"],
        gradient_accumulation_steps=cfg["gradient_accumulation_steps"],
        num_train_epochs=cfg["num_epochs"],
        optim=cfg["optimizer"],
        learning_rate=float(cfg["learning_rate"]),
        lr_scheduler_type=cfg["lr_scheduler"],
        warmup_steps=cfg["warmup_ratio"],
        weight_decay=cfg["weight_decay"],
        eval_strategy="epoch",
        save_strategy="no",
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=dataset["train"],
        eval_dataset=dataset["validation"],
        data_collator=DataCollatorForSeq2Seq(tokenizer),
    )
    trainer.train()
    model.save_pretrained(cfg["output_dir"])


if __name__ == "__main__":
    train(yaml.safe_load(CONFIG.read_text()))
