"""Hugging Face's Trainer over a GPT-2 with eager attention. Fixed: attn_implementation="sdpa"."""
import argparse
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

layers, width, heads, batch, length = (2, 64, 4, 2, 64) if arguments.small else (12, 768, 12, 16, 1024)


class Tokens(torch.utils.data.Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.rows = torch.randint(0, 50257, (256, length), generator=generator)

    def __len__(self):
        return arguments.steps * batch

    def __getitem__(self, index):
        row = self.rows[index % len(self.rows)]
        return {"input_ids": row, "labels": row}


config = GPT2Config(
    n_layer=layers,
    n_embd=width,
    n_head=heads,
    n_positions=length,
    attn_pdrop=0.0,
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    attn_implementation="sdpa" if arguments.fixed else "eager",
)
with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        output_dir=folder,
        max_steps=arguments.steps,
        per_device_train_batch_size=batch,
        bf16=torch.cuda.is_available(),
        use_cpu=not torch.cuda.is_available(),
        logging_steps=50,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    Trainer(model=GPT2LMHeadModel(config), args=settings, train_dataset=Tokens()).train()
