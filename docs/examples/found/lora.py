"""A LoRA adapter for an image classifier, trained with the Trainer of transformers, as in the examples of PEFT.

Source: https://github.com/huggingface/peft/tree/main/examples/image_classification, The HuggingFace Inc. team, Apache
License 2.0. Much shortened, and rewritten for current versions. Unlike the original, it uses a small ViT with random
weights, made here, instead of pretrained ones, and scikit-learn's digits instead of Food-101.
"""

import numpy as np
from peft import LoraConfig, get_peft_model
from sklearn.datasets import load_digits
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification, set_seed


def load_data():
    images, labels = load_digits(return_X_y=True)
    pixels = (images / 8 - 1).astype(np.float32).reshape(-1, 1, 8, 8)
    rows = [{"pixel_values": image, "labels": int(label)} for image, label in zip(pixels, labels, strict=True)]
    return rows[:1400], rows[1400:]


def compute_metrics(eval_pred):
    return {"accuracy": float((np.argmax(eval_pred.predictions, axis=1) == eval_pred.label_ids).mean())}


def main():
    train_ds, val_ds = load_data()
    set_seed(0)  # the same base model for each adapter
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    model = ViTForImageClassification(ViTConfig(image_size=8, patch_size=2, num_channels=1, num_labels=10, **sizes))
    config = LoraConfig(
        r=16,
        lora_alpha=16,
        target_modules=["q_proj", "v_proj"],
        lora_dropout=0.1,
        bias="none",
        modules_to_save=["classifier"],
    )
    lora_model = get_peft_model(model, config)
    lora_model.print_trainable_parameters()

    args = TrainingArguments(
        output_dir="vit-finetuned-lora",
        eval_strategy="epoch",
        save_strategy="no",
        learning_rate=5e-3,
        per_device_train_batch_size=64,
        num_train_epochs=5,
        report_to="none",
        label_names=["labels"],
    )
    trainer = Trainer(
        model=lora_model,
        args=args,
        train_dataset=train_ds,
        eval_dataset=val_ds,
        compute_metrics=compute_metrics,
    )
    trainer.train()
    print(trainer.evaluate())
    lora_model.save_pretrained("adapter")


if __name__ == "__main__":
    main()
