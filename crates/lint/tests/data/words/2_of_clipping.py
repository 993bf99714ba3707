# words: clip_grad, clip_grad_norm, clip_grad_norm_, clip_grad_value_, clip_gradients, clip_grads, grad_clip, gradient_clip_val, max_grad_norm
import torch
import tools


def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        loss = model(x, y).mean()
        loss.backward()
        tools.WORD(model, 1.0)
        optimizer.step()  # <~ TP605?
        optimizer.zero_grad()
