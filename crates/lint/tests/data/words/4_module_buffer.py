# words: register_buffer
import torch

class Net(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.WORD("scale", torch.ones(size))

    def forward(self, x):
        print(self.scale)  # <- TP103
        return self.body(x)
