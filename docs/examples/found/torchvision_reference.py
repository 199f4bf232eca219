"""torchvision's reference script for classification (references/classification/train.py).

Source: https://github.com/pytorch/vision/tree/main/references/classification, Soumith Chintala and the PyTorch
contributors, BSD 3-Clause License. Much shortened. Unlike the original, it uses scikit-learn's digits and a small
network instead of ImageNet and ResNet-18, and the CPU where there is no CUDA.
"""

import argparse
import os

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, TensorDataset


def init_distributed_mode(args):
    args.distributed = "RANK" in os.environ and "WORLD_SIZE" in os.environ
    if args.distributed:
        backend = "nccl" if args.device == "cuda" else "gloo"
        dist.init_process_group(backend=backend, rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
        dist.barrier()


def train_one_epoch(model, criterion, optimizer, data_loader, device, epoch, args):
    model.train()
    for image, target in data_loader:
        image, target = image.to(device), target.to(device)
        output = model(image)
        loss = criterion(output, target)

        optimizer.zero_grad()
        loss.backward()
        if args.clip_grad_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad_norm)
        optimizer.step()


def evaluate(model, criterion, data_loader, device):
    model.eval()
    correct = total = 0
    with torch.inference_mode():
        for image, target in data_loader:
            output = model(image.to(device))
            correct += (output.argmax(1).cpu() == target).sum().item()
            total += len(target)
    acc1 = 100 * correct / total
    print(f"Test: Acc@1 {acc1:.3f}")
    return acc1


def load_data(args):
    images, labels = load_digits(return_X_y=True)
    images, labels = torch.tensor(images / 16, dtype=torch.float32).unflatten(1, (1, 8, 8)), torch.tensor(labels)
    dataset, dataset_test = TensorDataset(images[:1400], labels[:1400]), TensorDataset(images[1400:], labels[1400:])
    train_sampler = DistributedSampler(dataset) if args.distributed else RandomSampler(dataset)
    return dataset, dataset_test, train_sampler


def main(args):
    init_distributed_mode(args)
    print(args)

    device = torch.device(args.device)
    torch.backends.cudnn.benchmark = True

    dataset, dataset_test, train_sampler = load_data(args)
    data_loader = DataLoader(dataset, batch_size=args.batch_size, sampler=train_sampler)
    data_loader_test = DataLoader(dataset_test, batch_size=args.batch_size)

    print("Creating model")
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10)).to(device)
    criterion = nn.CrossEntropyLoss(label_smoothing=args.label_smoothing)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum, weight_decay=args.weight_decay)
    lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=args.lr_step_size, gamma=args.lr_gamma)
    if args.distributed:
        model = nn.parallel.DistributedDataParallel(model)

    print("Start training")
    for epoch in range(args.start_epoch, args.epochs):
        if args.distributed:
            train_sampler.set_epoch(epoch)
        train_one_epoch(model, criterion, optimizer, data_loader, device, epoch, args)
        lr_scheduler.step()
        evaluate(model, criterion, data_loader_test, device)


def get_args_parser():
    parser = argparse.ArgumentParser(description="PyTorch Classification Training")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", type=str)
    parser.add_argument("-b", "--batch-size", default=32, type=int)
    parser.add_argument("--epochs", default=9, type=int, metavar="N", help="number of total epochs to run")
    parser.add_argument("--start-epoch", default=0, type=int, metavar="N", help="start epoch")
    parser.add_argument("--lr", default=0.1, type=float, help="initial learning rate")
    parser.add_argument("--momentum", default=0.9, type=float, metavar="M", help="momentum")
    parser.add_argument("--wd", "--weight-decay", default=1e-4, type=float, dest="weight_decay")
    parser.add_argument("--label-smoothing", default=0.0, type=float, dest="label_smoothing")
    parser.add_argument("--lr-step-size", default=30, type=int, help="decrease lr every step-size epochs")
    parser.add_argument("--lr-gamma", default=0.1, type=float, help="decrease lr by a factor of lr-gamma")
    parser.add_argument("--clip-grad-norm", default=None, type=float, help="the maximum gradient norm")
    return parser


if __name__ == "__main__":
    args = get_args_parser().parse_args()
    main(args)
