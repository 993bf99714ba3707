# words: backward, load_state_dict, log, log_dict, manual_backward, named_buffers, named_modules, register_parameter, state_dict, step, zero_grad
import torch

def train(loader, optimizer):
    model = torch.nn.Linear(4, 4)
    for batch in loader:
        loss = model(batch.cuda())
        part = model.WORD(loss)
        count = part.tolist()  # <~ TP102
        loss.backward()
        optimizer.step()
