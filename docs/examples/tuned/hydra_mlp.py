"""A script with Hydra, in the structure of its tutorial on structured configs.

Source: https://hydra.cc/docs/tutorials/structured_config/minimal_example, Facebook, Inc. and its affiliates, MIT
License. Unlike the original, which prints its configuration, it trains a small network on scikit-learn's digits.
"""

import sys
from dataclasses import dataclass

import hydra
import torch
from gaudi_tune import report, tune, tune_script
from hydra.core.config_store import ConfigStore
from sklearn.datasets import load_digits


@dataclass
class Config:
    hidden: int = 32
    lr: float = 0.01
    batch_size: int = 32
    epochs: int = 10
    seed: int = 0


ConfigStore.instance().store(name="config", node=Config)


@hydra.main(version_base=None, config_path=None, config_name="config")
def main(cfg: Config) -> None:
    torch.manual_seed(cfg.seed)
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    model = torch.nn.Sequential(torch.nn.Linear(64, cfg.hidden), torch.nn.ReLU(), torch.nn.Linear(cfg.hidden, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr, momentum=0.9)
    for epoch in range(1, cfg.epochs + 1):
        for rows in torch.randperm(1400).split(cfg.batch_size):
            loss = torch.nn.functional.cross_entropy(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        accuracy = (model(x[1400:]).argmax(1) == y[1400:]).float().mean().item()
        report({"epoch": epoch, "accuracy": accuracy})


if __name__ == "__main__":
    space = {"lr": tune.loguniform(1e-4, 1.0), "hidden": tune.choice([8, 32, 128])}
    sys.argv += [f"{name}={value}" for name, value in tune_script(space, metric="accuracy").items()]
    main()
