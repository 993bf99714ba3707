# words: env
import torch

def train(model, my_WORD_x, optimizer, loader, state):
    for move in range(state.moves):
        seen = my_WORD_x.step(model(state.x.cuda()))
        print(seen.item())  # <- TP101
    for x in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
