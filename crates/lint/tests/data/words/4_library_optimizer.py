# words: transformers.AdamW, transformers.Adafactor
# other: transformers.quux
import torch
import transformers

def train(model, loader):
    updates = WORD(model.parameters())
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        updates.step()  # <- TP605?
