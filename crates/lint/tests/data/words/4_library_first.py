# words: fastprogress.tqdm, rich.progress.track, tqdm.tqdm_notebook, itertools.chain, einops.rearrange, flash_attn.flash_attn_func, torch_scatter.scatter, torch_sparse.spmm, xformers.ops.memory_efficient_attention, torch.cat
# other: library.quux
import copy, einops, fastprogress, flash_attn, itertools, library, rich, torch, torch_scatter, torch_sparse, tqdm, xformers

def train(model, loader, optimizer):
    for batch in loader:
        losses = [model(batch.cuda())]
        for part in WORD(losses):
            print(part)  # <- TP103
        sum(losses).backward()
        optimizer.step()
