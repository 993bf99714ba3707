"""Accelerate over a distilled BERT whose teacher, not prepared, runs in single precision. Fixed: the teacher in bfloat16."""
import argparse

import torch
from accelerate import Accelerator
from torch.nn import functional
from transformers import BertConfig, BertForMaskedLM

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
layers, width, heads, vocabulary, batch, length = (2, 64, 4, 512, 4, 32) if arguments.small else (12, 768, 12, 8192, 32, 256)
MASK, TEMPERATURE = 1, 2.0


def bert(count):
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=count,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        max_position_embeddings=length,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return BertForMaskedLM(config)


torch.manual_seed(0)
# Mixed precision reaches what is prepared: the student.
accelerator = Accelerator(mixed_precision="bf16", cpu=not has_gpu)
teacher = bert(layers).to(accelerator.device).eval().requires_grad_(False)
if arguments.fixed:
    teacher = teacher.to(torch.bfloat16)
student = bert(layers // 2).train()
tokens = torch.randint(4, vocabulary, (arguments.steps * batch, length))
rows = tokens.masked_fill(torch.rand(tokens.shape) < 0.15, MASK)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows), batch_size=batch, pin_memory=has_gpu)
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-4, fused=has_gpu)
student, optimizer, loader = accelerator.prepare(student, optimizer, loader)
for step, (inputs,) in enumerate(loader, 1):
    with torch.no_grad():
        wanted = teacher(input_ids=inputs).logits
    logits = student(input_ids=inputs).logits
    loss = functional.kl_div(
        functional.log_softmax(logits.flatten(0, 1) / TEMPERATURE, dim=-1),
        functional.softmax(wanted.float().flatten(0, 1) / TEMPERATURE, dim=-1),
        reduction="batchmean",
    )
    accelerator.backward(loss * TEMPERATURE**2)
    optimizer.step()
    optimizer.zero_grad()
    if step % 50 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.4f}")
