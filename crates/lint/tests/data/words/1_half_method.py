# words: half
# other: bfloat16
import torch
from torch import nn

def train(loader, WORD):
    model = nn.TransformerEncoderLayer(512, 8).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for x in loader:
        model(x.cuda())[:, :WORD].mean().backward()  # <- TP401?
        optimizer.step()
