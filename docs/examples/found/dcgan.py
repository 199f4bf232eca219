"""PyTorch's example of a GAN, DCGAN: two networks with an optimizer each, in a script without a train function.

Source: https://github.com/pytorch/examples/blob/main/dcgan/main.py, the PyTorch contributors, BSD 3-Clause License.
Shortened. Unlike the original, it uses scikit-learn's digits and small networks instead of images of 64 x 64. At the
end of an epoch it computes the distance between the mean images of real and generated digits, which can be compared
between runs.
"""

import argparse
import random

import torch
import torch.nn as nn
import torch.optim as optim
import torch.utils.data
from sklearn.datasets import load_digits

parser = argparse.ArgumentParser()
parser.add_argument("--batchSize", type=int, default=64, help="input batch size")
parser.add_argument("--nz", type=int, default=16, help="size of the latent z vector")
parser.add_argument("--ngf", type=int, default=16)
parser.add_argument("--ndf", type=int, default=16)
parser.add_argument("--niter", type=int, default=10, help="number of epochs to train for")
parser.add_argument("--lr", type=float, default=0.0002, help="learning rate, default=0.0002")
parser.add_argument("--beta1", type=float, default=0.5, help="beta1 for adam. default=0.5")
parser.add_argument("--manualSeed", type=int, help="manual seed")
opt = parser.parse_args()
print(opt)

if opt.manualSeed is None:
    opt.manualSeed = random.randint(1, 10000)
print("Random Seed: ", opt.manualSeed)
random.seed(opt.manualSeed)
torch.manual_seed(opt.manualSeed)

images = torch.tensor(load_digits().data / 8 - 1, dtype=torch.float32).view(-1, 1, 8, 8)
dataset = torch.utils.data.TensorDataset(images)
dataloader = torch.utils.data.DataLoader(dataset, batch_size=opt.batchSize, shuffle=True)

device = torch.device("cpu")
nz, ngf, ndf, nc = opt.nz, opt.ngf, opt.ndf, 1


# custom weights initialization called on netG and netD
def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        torch.nn.init.normal_(m.weight, 0.0, 0.02)
    elif classname.find("BatchNorm") != -1:
        torch.nn.init.normal_(m.weight, 1.0, 0.02)
        torch.nn.init.zeros_(m.bias)


netG = nn.Sequential(
    nn.ConvTranspose2d(nz, ngf, 4, 1, 0, bias=False),
    nn.BatchNorm2d(ngf),
    nn.ReLU(True),
    nn.ConvTranspose2d(ngf, nc, 4, 2, 1, bias=False),
    nn.Tanh(),
)
netG.apply(weights_init)

netD = nn.Sequential(
    nn.Conv2d(nc, ndf, 4, 2, 1, bias=False),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(ndf, 1, 4, 1, 0, bias=False),
    nn.Sigmoid(),
    nn.Flatten(0),
)
netD.apply(weights_init)

criterion = nn.BCELoss()
fixed_noise = torch.randn(256, nz, 1, 1, device=device)
real_label = 1
fake_label = 0

# setup optimizer
optimizerD = optim.Adam(netD.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))

for epoch in range(opt.niter):
    for (real,) in dataloader:
        ############################
        # (1) Update D network: maximize log(D(x)) + log(1 - D(G(z)))
        ###########################
        netD.zero_grad()
        label = torch.full((len(real),), real_label, dtype=real.dtype, device=device)
        errD_real = criterion(netD(real), label)
        errD_real.backward()

        noise = torch.randn(len(real), nz, 1, 1, device=device)
        fake = netG(noise)
        label.fill_(fake_label)
        errD_fake = criterion(netD(fake.detach()), label)
        errD_fake.backward()
        errD = errD_real + errD_fake
        optimizerD.step()

        ############################
        # (2) Update G network: maximize log(D(G(z)))
        ###########################
        netG.zero_grad()
        label.fill_(real_label)  # fake labels are real for generator cost
        errG = criterion(netD(fake), label)
        errG.backward()
        optimizerG.step()

    with torch.no_grad():
        distance = (netG(fixed_noise).mean(0) - images.mean(0)).square().mean().sqrt().item()
    print("[%d/%d] Loss_D: %.4f Loss_G: %.4f distance: %.4f" % (epoch, opt.niter, errD.item(), errG.item(), distance))
