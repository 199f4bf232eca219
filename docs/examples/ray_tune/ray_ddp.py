"""Ray Train's example of data-parallel training with DistributedDataParallel.

Source: https://docs.ray.io/en/latest/train/examples/pytorch/torch_fashion_mnist_example.html, The Ray Authors, Apache
License 2.0. Shortened. Unlike the original, it uses scikit-learn's digits instead of FashionMNIST.
"""

import ray.train
import torch
from ray import tune
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.tune.integration.ray_train import TuneReportCallback
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def get_dataloaders(batch_size):
    images, labels = load_digits(return_X_y=True)
    data = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    train_x, test_x, train_y, test_y = train_test_split(*data, random_state=0)

    train_dataloader = DataLoader(TensorDataset(train_x, train_y), batch_size=batch_size)
    test_dataloader = DataLoader(TensorDataset(test_x, test_y), batch_size=batch_size)
    return train_dataloader, test_dataloader


class NeuralNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear_relu_stack = nn.Sequential(
            nn.Linear(8 * 8, 64),
            nn.ReLU(),
            nn.Dropout(0.25),
            nn.Linear(64, 10),
        )

    def forward(self, x):
        return self.linear_relu_stack(x)


def train_func_per_worker(config):
    lr = config["lr"]
    epochs = config["epochs"]
    batch_size = config["batch_size_per_worker"]

    train_dataloader, test_dataloader = get_dataloaders(batch_size=batch_size)

    # [1] Prepare Dataloader for distributed training
    train_dataloader = ray.train.torch.prepare_data_loader(train_dataloader)
    test_dataloader = ray.train.torch.prepare_data_loader(test_dataloader)

    # [2] Prepare and wrap your model with DistributedDataParallel
    model = ray.train.torch.prepare_model(NeuralNetwork())

    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)

    for _epoch in range(epochs):
        model.train()
        for X, y in train_dataloader:
            pred = model(X)
            loss = loss_fn(pred, y)

            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        model.eval()
        test_loss, num_correct, num_total = 0, 0, 0
        with torch.no_grad():
            for X, y in test_dataloader:
                pred = model(X)
                test_loss += loss_fn(pred, y).item()
                num_total += y.shape[0]
                num_correct += (pred.argmax(1) == y).sum().item()

        # [3] Report metrics to Ray Train
        ray.train.report(metrics={"loss": test_loss / len(test_dataloader), "accuracy": num_correct / num_total})


def train_fashion_mnist(config, num_workers=2):

    # [4] Start Distributed Training
    trainer = TorchTrainer(
        train_loop_per_worker=train_func_per_worker,
        train_loop_config={**config, "epochs": 10},
        scaling_config=ScalingConfig(num_workers=num_workers),
        run_config=RunConfig(callbacks=[TuneReportCallback()]),
    )
    trainer.fit()


if __name__ == "__main__":
    tuner = tune.Tuner(
        tune.with_resources(train_fashion_mnist, {"CPU": 0}),
        param_space={"lr": tune.loguniform(1e-4, 1.0), "batch_size_per_worker": tune.choice([8, 16, 32])},
        tune_config=tune.TuneConfig(
            metric="accuracy",
            mode="max",
            num_samples=20,
            max_concurrent_trials=1,
            search_alg=OptunaSearch(),
            scheduler=ASHAScheduler(max_t=10, grace_period=1, reduction_factor=3),
        ),
    )
    best = tuner.fit().get_best_result()
    print(best.config, best.metrics["accuracy"])
