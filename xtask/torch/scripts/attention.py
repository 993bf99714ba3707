"""Attention by nn.MultiheadAttention, whose weights one module drops, alone or in a list, and another returns, and an encoder of PyTorch's own."""
import torch
from torch import nn

torch.manual_seed(0)


class Drops(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x):
        mixed, _ = self.attention(x, x, x)
        return x + mixed


class Reads(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x):
        mixed, weights = self.attention(x, x, x)
        return x + mixed, weights


class Listed(nn.Module):
    """As a U-Net has them: one per layer, in a list."""

    def __init__(self):
        super().__init__()
        self.attentions = nn.ModuleList([nn.MultiheadAttention(32, 4, batch_first=True) for _ in range(2)])

    def forward(self, x):
        for i in range(2):
            mixed, _ = self.attentions[i](x, x, x)
            x = x + mixed
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.drops, self.reads, self.listed = Drops(), Reads(), Listed()
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, x):
        mixed, weights = self.reads(self.listed(self.drops(x)))
        return self.encoder(mixed), weights


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(8):
    optimizer.zero_grad()
    result, weights = model(torch.randn(4, 16, 32))
    loss = result.square().mean() + weights.square().mean()
    loss.backward()
    optimizer.step()
