"""A VQ-VAE whose nearest codes are found from all differences held in memory. Fixed: from a product and two norms."""
import argparse

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
batch, side, width, blocks, codes, code_width = (2, 32, 32, 1, 32, 16) if arguments.small else (64, 128, 256, 4, 512, 64)
COMMITMENT = 0.25
torch.backends.cudnn.benchmark = True


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(True),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x):
        return x + self.body(x)


class Quantizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.codebook = nn.Embedding(codes, code_width)
        nn.init.normal_(self.codebook.weight)

    def nearest(self, vectors):
        table = self.codebook.weight
        if arguments.fixed:
            distances = vectors.square().sum(1, keepdim=True) - 2 * vectors @ table.t() + table.square().sum(1)
        else:
            distances = ((vectors.unsqueeze(1) - table.unsqueeze(0)) ** 2).sum(-1)
        return distances.argmin(1)

    def forward(self, z):
        z = z.float().permute(0, 2, 3, 1)
        chosen = self.nearest(z.reshape(-1, code_width))
        quantized = self.codebook(chosen).view(z.shape)
        loss = functional.mse_loss(quantized, z.detach()) + COMMITMENT * functional.mse_loss(z, quantized.detach())
        # The gradient passes straight through the choice.
        quantized = z + (quantized - z).detach()
        return quantized.permute(0, 3, 1, 2), loss


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, width // 2, 4, 2, 1),
            nn.ReLU(True),
            nn.Conv2d(width // 2, width, 4, 2, 1),
            *(Residual() for _ in range(blocks)),
            nn.ReLU(),
            nn.Conv2d(width, code_width, 1),
            nn.BatchNorm2d(code_width),
        )
        self.quantizer = Quantizer()
        self.decoder = nn.Sequential(
            nn.Conv2d(code_width, width, 3, padding=1),
            *(Residual() for _ in range(blocks)),
            nn.ReLU(),
            nn.ConvTranspose2d(width, width // 2, 4, 2, 1),
            nn.ReLU(True),
            nn.ConvTranspose2d(width // 2, 3, 4, 2, 1),
        )

    def forward(self, images):
        z = self.encoder(images)
        with torch.autocast(device, enabled=False):
            quantized, loss = self.quantizer(z)
        return self.decoder(quantized), loss


torch.manual_seed(0)
model = Autoencoder().to(device, memory_format=torch.channels_last)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-4, fused=has_gpu)
pictures = torch.randint(0, 256, (4, batch, 3, side, side), dtype=torch.uint8, device=device)
for step in range(1, arguments.steps + 1):
    images = (pictures[step % 4].float() / 127.5 - 1.0).contiguous(memory_format=torch.channels_last)
    with torch.autocast(device, torch.bfloat16, enabled=has_gpu):
        rebuilt, code_loss = model(images)
    loss = functional.mse_loss(rebuilt.float(), images) + code_loss
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if step % 50 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.4f} codes {code_loss.item():.4f}")
