"""PyTorch's example of a regression: it fits a polynomial of degree 4, in a script without a train function.

Source: https://github.com/pytorch/examples/blob/main/regression/main.py, the PyTorch contributors, BSD 3-Clause
License. Shortened. Unlike the original, it prints the loss every 100 batches, ends after 1,000, and fits the same
polynomial in every run.
"""

from itertools import count

import torch
import torch.nn.functional as F
from gaudi_tune import report, tune, tune_script

config = tune_script({"lr": tune.loguniform(1e-3, 10.0)}, metric="loss")

POLY_DEGREE = 4
torch.manual_seed(0)
W_target = torch.randn(POLY_DEGREE, 1) * 5
b_target = torch.randn(1) * 5


def make_features(x):
    """Builds features i.e. a matrix with columns [x, x^2, x^3, x^4]."""
    x = x.unsqueeze(1)
    return torch.cat([x**i for i in range(1, POLY_DEGREE + 1)], 1)


def f(x):
    """Approximated function."""
    return x.mm(W_target) + b_target.item()


def get_batch(batch_size=32):
    """Builds a batch i.e. (x, f(x)) pair."""
    random = torch.randn(batch_size)
    x = make_features(random)
    y = f(x)
    return x, y


# Define model
fc = torch.nn.Linear(W_target.size(0), 1)
total = 0.0

for batch_idx in count(1):
    # Get data
    batch_x, batch_y = get_batch()

    # Reset gradients
    fc.zero_grad()

    # Forward pass
    output = F.smooth_l1_loss(fc(batch_x), batch_y)
    loss = output.item()
    total += loss

    # Backward pass
    output.backward()

    # Apply gradients
    for param in fc.parameters():
        param.data.add_(-config["lr"] * param.grad)

    if batch_idx % 100 == 0:
        print(f"Loss: {total / 100:.6f} after {batch_idx} batches")
        report({"loss": total / 100})
        total = 0.0

    # Stop criterion
    if loss < 1e-3 or batch_idx == 1000:
        break
