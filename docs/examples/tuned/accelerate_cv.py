"""Accelerate's example of a vision model (cv_example.py).

Source: https://github.com/huggingface/accelerate/blob/main/examples/cv_example.py, The HuggingFace Inc. team, Apache
License 2.0. Shortened. Unlike the original, it uses scikit-learn's digits and a small network instead of the pets and a
pretrained ResNet-50.
"""

import argparse

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from gaudi_tune import Experiment, main as tune_main, report, tune
from sklearn.datasets import load_digits
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset


def training_function(config, args):
    # Initialize accelerator
    accelerator = Accelerator(cpu=args.cpu, mixed_precision=args.mixed_precision)

    # Sample hyper-parameters for learning rate, batch size, seed and a few other HPs
    lr = config["lr"]
    num_epochs = int(config["num_epochs"])
    seed = int(config["seed"])
    batch_size = int(config["batch_size"])

    images, labels = load_digits(return_X_y=True)
    images, labels = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)

    # Set the seed before splitting the data.
    set_seed(seed)
    random_perm = np.random.permutation(len(images))
    cut = int(0.8 * len(images))
    train_split, eval_split = random_perm[:cut], random_perm[cut:]

    # Instantiate dataloaders.
    train_dataset = TensorDataset(images[train_split], labels[train_split])
    eval_dataset = TensorDataset(images[eval_split], labels[eval_split])
    train_dataloader = DataLoader(train_dataset, shuffle=True, batch_size=batch_size)
    eval_dataloader = DataLoader(eval_dataset, shuffle=False, batch_size=batch_size)

    # Instantiate the model (we build the model here so that the seed also control new weights initialization)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

    # Instantiate optimizer and learning rate scheduler
    optimizer = torch.optim.Adam(params=model.parameters(), lr=lr / 25)
    lr_scheduler = OneCycleLR(optimizer=optimizer, max_lr=lr, epochs=num_epochs, steps_per_epoch=len(train_dataloader))

    # Prepare everything
    model, optimizer, train_dataloader, eval_dataloader, lr_scheduler = accelerator.prepare(
        model, optimizer, train_dataloader, eval_dataloader, lr_scheduler
    )

    # Now we train the model
    for epoch in range(num_epochs):
        model.train()
        for inputs, targets in train_dataloader:
            outputs = model(inputs)
            loss = torch.nn.functional.cross_entropy(outputs, targets)
            accelerator.backward(loss)
            optimizer.step()
            lr_scheduler.step()
            optimizer.zero_grad()

        model.eval()
        accurate = 0
        num_elems = 0
        for inputs, targets in eval_dataloader:
            with torch.no_grad():
                outputs = model(inputs)
            predictions = outputs.argmax(dim=-1)
            predictions, references = accelerator.gather_for_metrics((predictions, targets))
            accurate_preds = predictions == references
            num_elems += accurate_preds.shape[0]
            accurate += accurate_preds.long().sum()

        eval_metric = accurate.item() / num_elems
        # Use accelerator.print to print only on the main process.
        accelerator.print(f"epoch {epoch}: {100 * eval_metric:.2f}")
        report({"accuracy": eval_metric})
    accelerator.end_training()


def main():
    parser = argparse.ArgumentParser(description="Simple example of training script.")
    parser.add_argument("--mixed_precision", type=str, default=None, choices=["no", "fp16", "bf16", "fp8"])
    parser.add_argument("--cpu", action="store_true", help="If passed, will train on the CPU.")
    args = parser.parse_args([])
    config = {"lr": 3e-2, "num_epochs": 3, "seed": 42, "batch_size": 64}
    space = {"lr": tune.loguniform(1e-4, 1e-1), "batch_size": tune.choice([16, 32, 64, 128])}
    loop = lambda trial: training_function({**config, **trial, "num_epochs": trial["epochs"]}, args)
    tune_main(Experiment(train_loop=loop, space=space, metric="accuracy"))


if __name__ == "__main__":
    main()
