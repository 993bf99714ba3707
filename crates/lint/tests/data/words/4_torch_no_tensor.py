# words: Generator, Size, device, finfo, iinfo, get_default_dtype, load, manual_seed, save, set_default_dtype, backends.cudnn.version, cuda.device_count, distributed.get_rank, utils.data.ConcatDataset
import torch

def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch.cuda())
        part = torch.WORD(loss)
        count = part.tolist()  # <~ TP102
        loss.backward()
        optimizer.step()
