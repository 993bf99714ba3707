# words: eval, test
import torch


def train(model, loader, optimizer, WORD_env):
    for trial in range(100):
        action = model(WORD_env.state).mean()
        WORD_env.step(action.item())  # <~ TP101
    for x, y in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
