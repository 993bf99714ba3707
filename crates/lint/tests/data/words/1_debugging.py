# words: check_nan, debug, detect_anomaly, dry_run, is_mps, is_npu, nan_check, onnx, profile, sanity, trace, verbose, visuali
import torch

def train(model, loader, optimizer, state):
    for x in loader:
        model(x.cuda()).mean().backward()
        optimizer.step()
        if state.my_WORD_x:
            torch.cuda.synchronize()  # <~ TP105?
