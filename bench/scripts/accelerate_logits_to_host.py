"""Accelerate over a masked BERT whose accuracy is counted from logits copied to the host. Fixed: counted on the device."""
import argparse

import torch
from accelerate import Accelerator
from transformers import BertConfig, BertForMaskedLM

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
layers, width, heads, vocabulary, batch, length = (2, 64, 4, 512, 4, 32) if arguments.small else (12, 768, 12, 4096, 32, 256)
MASK, IGNORED = 1, -100

torch.manual_seed(0)
accelerator = Accelerator(mixed_precision="bf16", cpu=not has_gpu)
config = BertConfig(
    vocab_size=vocabulary,
    hidden_size=width,
    num_hidden_layers=layers,
    num_attention_heads=heads,
    intermediate_size=4 * width,
    max_position_embeddings=length,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
model = BertForMaskedLM(config).train()
tokens = torch.randint(4, vocabulary, (arguments.steps * batch, length))
hidden = torch.rand(tokens.shape) < 0.15
inputs, targets = tokens.masked_fill(hidden, MASK), tokens.masked_fill(~hidden, IGNORED)
dataset = torch.utils.data.TensorDataset(inputs, targets)
loader = torch.utils.data.DataLoader(dataset, batch_size=batch, pin_memory=has_gpu)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=has_gpu)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
correct = counted = 0
for step, (rows, labels) in enumerate(loader, 1):
    outputs = model(input_ids=rows, labels=labels)
    accelerator.backward(outputs.loss)
    optimizer.step()
    optimizer.zero_grad()

    logits, labels = accelerator.gather_for_metrics((outputs.logits.detach(), labels))
    if not arguments.fixed:
        logits, labels = logits.cpu(), labels.cpu()
    kept = labels != IGNORED
    correct += ((logits.argmax(-1) == labels) & kept).sum()
    counted += kept.sum()
    if step % 50 == 0 or step == arguments.steps:
        print(f"step {step} loss {outputs.loss.item():.4f} accuracy {(correct / counted).item():.4f}")
