"""Ray Train's guide "Get Started with Distributed Training using PyTorch": the loop that its quickstart shows.

Source: https://docs.ray.io/en/latest/train/getting-started-pytorch.html, The Ray Authors, Apache License 2.0.
Shortened. Unlike the original, it uses scikit-learn's digits and a small network instead of FashionMNIST and ResNet-18.
"""

import os
import tempfile

import ray.train.torch
import torch
from sklearn.datasets import load_digits
from torch.nn import CrossEntropyLoss
from torch.optim import Adam
from torch.utils.data import DataLoader, TensorDataset


def train_func():
    # Model, Loss, Optimizer
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    # [1] Prepare model.
    model = ray.train.torch.prepare_model(model)
    criterion = CrossEntropyLoss()
    optimizer = Adam(model.parameters(), lr=0.001)

    # Data
    images, labels = load_digits(return_X_y=True)
    train_data = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    train_loader = DataLoader(train_data, batch_size=128, shuffle=True)
    # [2] Prepare dataloader.
    train_loader = ray.train.torch.prepare_data_loader(train_loader)

    # Training
    for epoch in range(10):
        if ray.train.get_context().get_world_size() > 1:
            train_loader.sampler.set_epoch(epoch)

        for images, labels in train_loader:
            outputs = model(images)
            loss = criterion(outputs, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        # [3] Report metrics and checkpoint.
        metrics = {"loss": loss.item(), "epoch": epoch}
        with tempfile.TemporaryDirectory() as temp_checkpoint_dir:
            torch.save(model.module.state_dict(), os.path.join(temp_checkpoint_dir, "model.pt"))
            ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(temp_checkpoint_dir))
        if ray.train.get_context().get_world_rank() == 0:
            print(metrics)


# [4] Configure scaling and resource requirements.
scaling_config = ray.train.ScalingConfig(num_workers=2)

# [5] Launch distributed training job.
trainer = ray.train.torch.TorchTrainer(train_func, scaling_config=scaling_config)
result = trainer.fit()
