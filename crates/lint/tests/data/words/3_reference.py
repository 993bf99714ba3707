# words: frozen, ref, reference, teacher
import torch


def gradients(model, my_WORD_net, loader, rows):
    my_WORD_net.eval()
    for x in loader:
        loss = (model(x.cuda()) - my_WORD_net(x.cuda())).sum()
        loss.backward()
        rows.append(loss.item())  # <- TP101
