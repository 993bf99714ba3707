# words: EVAL, INFERENCE, PREDICT, TEST, VAL, VALID, VALIDATE, VALIDATION
import torch

def train(model, loader, optimizer, stage):
    for batch in loader:
        loss = model(batch.cuda())
        if stage == Stage.WORD:
            print(loss)  # <~ TP103?
        loss.backward()
        optimizer.step()
