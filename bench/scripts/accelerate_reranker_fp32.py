"""Accelerate over a MiniLM that reranks passages, at the default precision. Fixed: mixed_precision="bf16"."""
import argparse

import torch
from accelerate import Accelerator
from torch.nn import functional
from transformers import BertConfig, BertForSequenceClassification

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=110)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

small = (2, 64, 4, 512, 4, 32)
layers, width, heads, vocabulary, batch, length = small if arguments.small else (12, 384, 12, 30528, 32, 256)


class Pairs(torch.utils.data.Dataset):
    """A question and a passage in one row, and whether the passage answers it."""

    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.rows = torch.randint(5, vocabulary, (1024, length), generator=generator)
        self.answers = (torch.rand(1024, generator=generator) < 0.25).float()
        self.kinds = (torch.arange(length) >= length // 8).long()

    def __len__(self):
        return arguments.steps * batch

    def __getitem__(self, index):
        return self.rows[index % 1024], self.kinds, self.answers[index % 1024]


torch.manual_seed(0)
has_gpu = torch.cuda.is_available()
accelerator = Accelerator(cpu=not has_gpu, mixed_precision="bf16" if arguments.fixed else None)
config = BertConfig(
    vocab_size=vocabulary,
    hidden_size=width,
    num_hidden_layers=layers,
    num_attention_heads=heads,
    intermediate_size=4 * width,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    num_labels=1,
)
model = BertForSequenceClassification(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, fused=has_gpu)
loader = torch.utils.data.DataLoader(Pairs(), batch_size=batch, pin_memory=has_gpu)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
model.train()
for step, (rows, kinds, answers) in enumerate(loader, 1):
    scores = model(input_ids=rows, token_type_ids=kinds).logits.squeeze(1)
    loss = functional.binary_cross_entropy_with_logits(scores.float(), answers)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    if step % 50 == 0 or step == arguments.steps:
        accelerator.print(f"step {step} loss {loss.item():.4f}")
