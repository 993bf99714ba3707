# words: attention_mask, batch, data, edge_attr, edge_index, grad, hidden_states, imag, input_ids, labels, last_hidden_state, logits, loss, pooler_output, real, sample, x, y
import torch

def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch.cuda())
        loss.sum().backward()
        print(loss.WORD)  # <- TP103
        optimizer.step()
