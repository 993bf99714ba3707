# words: _tok, acc, args, cfg, ckpt, class, cls, config, dim, dir, entropy, error, file, grad, grads, hidden, id, input, inputs, logits, loss, losses, lr, mask, name, out, output, outputs, outs, path, pred, preds, prob, probs, processor, reward, rewards, score, scores, size, target, targets, tokenizer, type
import torch


def evaluate(model_WORD, loader):
    total = 0
    for x, y in loader:
        total += model_WORD(x.cuda()).sum()  # <~ TP601?
    return total
