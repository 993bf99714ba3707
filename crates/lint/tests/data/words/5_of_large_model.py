# words: AutoModelForCausalLM
# shows: confidence
import torch
from models import WORD

def train(settings, loader, optimizer):
    model = WORD.from_config(settings).cuda()
    head = torch.nn.Linear(64, 8).cuda()
    for x in loader:
        loss = head(model(x.cuda())).sum()
        loss.backward()  # <- TP401?/high # <~ TP401?/medium
        optimizer.step()
