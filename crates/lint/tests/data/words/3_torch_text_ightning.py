# words: ightning
from lWORD import LWORDModule


class Net(LWORDModule):
    def forward(self, x):
        self.scale = x.abs().mean().item()  # <- TP101
        return x / self.scale
