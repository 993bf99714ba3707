# words: incremental_state, inference_params, is_decoding, kv_cache, layer_past, past_key_value, past_key_values, prev_key, prev_key_padding_mask, prev_value, saved_state, use_cache
import torch

def attend(x, WORD):
    if WORD is not None:
        torch.cuda.synchronize()  # <~ TP105?
    return x * 2

def train(model, loader, optimizer, state):
    for x in loader:
        attend(model(x.cuda()).mean(), state).backward()
        optimizer.step()
