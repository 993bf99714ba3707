# words: do_eval, eval, eval_mode, eval_only, evaluate, inference, is_eval, is_inference, is_test, test, test_mode, test_only, testing, val, validate, validation
import torch

def train(model, loader, optimizer, WORD):
    for x in loader:
        model(x.cuda()).mean().backward()
        optimizer.step()
        if WORD:
            torch.cuda.synchronize()  # <~ TP105?
