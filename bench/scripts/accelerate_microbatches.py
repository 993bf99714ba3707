"""Accelerate over a GPT-2 that gathers its gradient from small micro-batches. Fixed: the same samples in one batch."""
import argparse

import torch
from accelerate import Accelerator
from transformers import GPT2Config, GPT2LMHeadModel

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
layers, width, heads, vocabulary, batch, length = (2, 64, 4, 512, 8, 16) if arguments.small else (6, 768, 12, 16384, 32, 512)
pieces = 1 if arguments.fixed else 8

torch.manual_seed(0)
accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=pieces, cpu=not has_gpu)
config = GPT2Config(
    vocab_size=vocabulary,
    n_positions=length,
    n_embd=width,
    n_layer=layers,
    n_head=heads,
    activation_function="gelu_pytorch_tanh",
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    attn_pdrop=0.0,
    use_cache=False,
    bos_token_id=0,
    eos_token_id=0,
)
with torch.device(accelerator.device):
    model = GPT2LMHeadModel(config).train()
tokens = torch.randint(0, vocabulary, (arguments.steps * batch, length))
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(tokens), batch_size=batch // pieces, pin_memory=has_gpu)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=has_gpu)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for (rows,) in loader:
    with accelerator.accumulate(model):
        loss = model(input_ids=rows, labels=rows).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
print(f"loss {loss.item():.4f}")
