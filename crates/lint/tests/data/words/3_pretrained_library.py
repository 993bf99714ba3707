# words: transformers
from my_WORD_fork import BaseModel
from torch import nn


class Net(BaseModel):
    def __init__(self, width):
        super().__init__()
        self.q_proj = nn.Linear(width, width)  # <- TP410?
        self.k_proj = nn.Linear(width, width)
        self.v_proj = nn.Linear(width, width)

    def forward(self, x):
        return self.q_proj(x) * self.k_proj(x) + self.v_proj(x)
