"""A language model in the style of nanoGPT: settings as globals, then a script from top to bottom.

Source: https://github.com/karpathy/nanoGPT/blob/master/train.py, Andrej Karpathy, MIT License. Much shortened. Unlike
the original, it reads the characters of a source file of torch instead of Shakespeare, uses a small transformer of
torch instead of model.py, and has configurator.py, which lets --key=value override the globals, in one line.
"""

import inspect
import math
import os
import sys
from contextlib import nullcontext

import torch
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP

# I/O
eval_interval = 20
eval_iters = 5
# data
batch_size = 16
block_size = 32
# model
n_layer = 2
n_head = 2
n_embd = 32
dropout = 0.0
# adamw optimizer
learning_rate = 6e-4
max_iters = 200
weight_decay = 1e-1
grad_clip = 1.0
# learning rate decay settings
warmup_iters = 10
min_lr = 6e-5
# DDP settings
backend = "gloo"
# system
device = "cpu"
# -----------------------------------------------------------------------------
globals().update({key: type(globals()[key])(value) for key, _, value in (a[2:].partition("=") for a in sys.argv[1:])})
# -----------------------------------------------------------------------------

# various inits, derived attributes, I/O setup
ddp = int(os.environ.get("RANK", -1)) != -1  # is this a ddp run?
if ddp:
    init_process_group(backend=backend)
    seed_offset = int(os.environ["RANK"])
    master_process = seed_offset == 0
else:
    seed_offset = 0
    master_process = True
torch.manual_seed(1337 + seed_offset)
ctx = nullcontext()

text = inspect.getsource(torch.nn.modules.transformer)
chars = sorted(set(text))
data = torch.tensor([chars.index(c) for c in text])
train_data, val_data = data[: int(0.9 * len(data))], data[int(0.9 * len(data)) :]


def get_batch(split):
    data = train_data if split == "train" else val_data
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([data[i : i + block_size] for i in ix])
    y = torch.stack([data[i + 1 : i + 1 + block_size] for i in ix])
    return x.to(device), y.to(device)


class GPT(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = torch.nn.Embedding(len(chars), n_embd)
        self.wpe = torch.nn.Embedding(block_size, n_embd)
        layer = torch.nn.TransformerEncoderLayer(n_embd, n_head, 4 * n_embd, dropout, batch_first=True, norm_first=True)
        self.h = torch.nn.TransformerEncoder(layer, n_layer, enable_nested_tensor=False)
        self.lm_head = torch.nn.Linear(n_embd, len(chars), bias=False)

    def forward(self, idx, targets):
        mask = torch.nn.Transformer.generate_square_subsequent_mask(idx.size(1))
        x = self.h(self.wte(idx) + self.wpe.weight[: idx.size(1)], mask=mask, is_causal=True)
        logits = self.lm_head(x)
        return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


model = GPT().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=weight_decay, betas=(0.9, 0.95))
if ddp:
    model = DDP(model)


# helps estimate an arbitrarily accurate loss over either split using many batches
@torch.no_grad()
def estimate_loss():
    out = {}
    model.eval()
    for split in ["train", "val"]:
        losses = torch.zeros(eval_iters)
        for k in range(eval_iters):
            X, Y = get_batch(split)
            _, loss = model(X, Y)
            losses[k] = loss.item()
        out[split] = losses.mean()
    model.train()
    return out


# learning rate decay scheduler (cosine with warmup)
def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    decay_ratio = (it - warmup_iters) / (max_iters - warmup_iters)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * decay_ratio)) * (learning_rate - min_lr)


# training loop
X, Y = get_batch("train")
iter_num = 0
while True:
    for param_group in optimizer.param_groups:
        param_group["lr"] = get_lr(iter_num)

    # evaluate the loss on train/val sets
    if iter_num % eval_interval == 0:
        losses = estimate_loss()
        if master_process:
            print(f"step {iter_num}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")

    with ctx:
        logits, loss = model(X, Y)
    X, Y = get_batch("train")
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)

    iter_num += 1
    if iter_num > max_iters:
        break

if ddp:
    destroy_process_group()
