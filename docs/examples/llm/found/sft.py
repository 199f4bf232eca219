"""A LoRA adapter for a language model, trained with the SFTTrainer of TRL, as in its documentation.

Source: https://huggingface.co/docs/trl/sft_trainer and https://github.com/huggingface/trl/blob/main/trl/scripts/sft.py,
The HuggingFace Inc. team, Apache License 2.0. Shortened. Unlike the original, it uses a Llama of two layers and
questions about parameters of Python libraries, which are made here, instead of Qwen3 0.6B and Capybara.
"""

from datasets import load_dataset
from gaudi_tune.data.sample_chat import sample_chat, sample_llm
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer


def to_chat(row):
    prompt = [{"role": "user", "content": row["instruction"]}]
    return {"prompt": prompt, "completion": [{"role": "assistant", "content": row["output"]}]}


def main():
    dataset = load_dataset(str(sample_chat())).map(to_chat, remove_columns=["instruction", "output"])
    peft_config = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear")
    training_args = SFTConfig(
        output_dir="sft-lora",
        learning_rate=2.0e-4,
        num_train_epochs=3,
        per_device_train_batch_size=16,
        max_length=64,
        eval_strategy="epoch",
        save_strategy="no",
        bf16=False,  # TRL's default needs a GPU
        report_to="none",
    )
    trainer = SFTTrainer(
        model=str(sample_llm()),
        args=training_args,
        train_dataset=dataset["train"],
        eval_dataset=dataset["validation"],
        peft_config=peft_config,
    )
    trainer.train()
    trainer.save_model(training_args.output_dir)


if __name__ == "__main__":
    main()
