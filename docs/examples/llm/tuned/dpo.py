"""A LoRA adapter that prefers one answer to another, trained with the DPOTrainer of TRL, as in its documentation.

Source: https://huggingface.co/docs/trl/dpo_trainer and https://github.com/huggingface/trl/blob/main/trl/scripts/dpo.py,
The HuggingFace Inc. team, Apache License 2.0. Shortened. Unlike the original, it uses a Llama of two layers and
questions about parameters of Python libraries, which are made here; what is rejected is the answer to another question.
"""

from datasets import load_dataset
from gaudi_tune import Experiment, main as tune_main, tune
from gaudi_tune.data.sample_chat import sample_chat, sample_llm
from gaudi_tune.integrations.hugging_face import ReportCallback, checkpoint_folder
from peft import LoraConfig
from trl import DPOConfig, DPOTrainer


def to_preference(row, index, answers):
    chosen, rejected = row["output"], answers[index - 1]
    return {
        "prompt": [{"role": "user", "content": row["instruction"]}],
        "chosen": [{"role": "assistant", "content": chosen}],
        "rejected": [{"role": "assistant", "content": rejected}],
    }


def main(trial):
    dataset = load_dataset(str(sample_chat()))
    parts = {
        split: rows.map(
            to_preference,
            with_indices=True,
            fn_kwargs={"answers": list(rows["output"])},
            remove_columns=["instruction", "output"],
        )
        for split, rows in dataset.items()
    }
    peft_config = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear")
    training_args = DPOConfig(
        output_dir="dpo-lora",
        learning_rate=trial["lr"],
        beta=trial["beta"],
        num_train_epochs=trial["epochs"],
        per_device_train_batch_size=16,
        max_length=64,
        eval_strategy="epoch",
        save_strategy="no",
        bf16=False,  # TRL's default needs a GPU
        report_to="none",
    )
    trainer = DPOTrainer(
        model=str(sample_llm()),
        args=training_args,
        train_dataset=parts["train"],
        eval_dataset=parts["validation"],
        peft_config=peft_config,
        callbacks=[ReportCallback()],
    )
    trainer.train(resume_from_checkpoint=checkpoint_folder())
    trainer.save_model(training_args.output_dir)


if __name__ == "__main__":
    space = {"lr": tune.loguniform(1e-5, 1e-2), "beta": tune.loguniform(0.01, 1.0)}
    tune_main(Experiment(train_loop=main, space=space, metric="eval_rewards/accuracies", mode="max"))
