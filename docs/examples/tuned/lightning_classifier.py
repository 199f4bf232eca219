"""Lightning's example of an image classifier (backbone_image_classifier.py).

Source: https://github.com/Lightning-AI/pytorch-lightning/blob/master/examples/pytorch/basics, The Lightning AI team,
Apache License 2.0. Shortened. Unlike the original, it uses scikit-learn's digits instead of MNIST, and a Trainer
instead of LightningCLI.
"""

import torch
from gaudi_tune import Experiment, main as tune_main, tune
from lightning.pytorch import LightningDataModule, LightningModule, Trainer, seed_everything
from sklearn.datasets import load_digits
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split
from gaudi_tune.integrations.lightning import in_worker


class Backbone(torch.nn.Module):
    def __init__(self, hidden_dim=128):
        super().__init__()
        self.l1 = torch.nn.Linear(8 * 8, hidden_dim)
        self.l2 = torch.nn.Linear(hidden_dim, 10)

    def forward(self, x):
        x = torch.relu(self.l1(x))
        return self.l2(x)


class LitClassifier(LightningModule):
    def __init__(self, learning_rate=0.0001):
        super().__init__()
        self.save_hyperparameters()
        self.backbone = Backbone()

    def forward(self, x):
        return self.backbone(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("valid_loss", loss, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.learning_rate)


class MyDataModule(LightningDataModule):
    def __init__(self, batch_size=32):
        super().__init__()
        images, labels = load_digits(return_X_y=True)
        dataset = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
        self.train, self.val = random_split(dataset, [1400, 397], generator=torch.Generator().manual_seed(42))
        self.batch_size = batch_size

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val, batch_size=self.batch_size)


def main(config):
    seed_everything(1234)
    model = LitClassifier(config["lr"])
    trainer = Trainer(max_epochs=config["epochs"], **in_worker())
    trainer.fit(model, datamodule=MyDataModule())


if __name__ == "__main__":
    tune_main(Experiment(train_loop=main, space={"lr": tune.loguniform(1e-5, 1e-1)}, metric="valid_loss"))
