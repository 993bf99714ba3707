"""Hugging Face's Trainer over a BERT whose batches are masked token by token in Python. Fixed: masked as whole tensors."""
import argparse
import random
import tempfile

import torch
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

layers, width, heads, vocabulary, batch, length = (2, 64, 4, 512, 4, 32) if arguments.small else (6, 512, 8, 8192, 64, 512)
PAD, MASK, FIRST = 0, 1, 4


class Sentences(torch.utils.data.Dataset):
    """Sentences of half to full length, as a tokenizer leaves them."""

    def __init__(self):
        draw = random.Random(0)
        lengths = [draw.randint(length // 2, length) for _ in range(1024)]
        self.rows = [[draw.randrange(FIRST, vocabulary) for _ in range(count)] for count in lengths]
        self.tensors = [torch.tensor(row) for row in self.rows]

    def __len__(self):
        return arguments.steps * batch

    def __getitem__(self, index):
        rows = self.tensors if arguments.fixed else self.rows
        return {"input_ids": rows[index % 1024]}


def masked_by_token(examples):
    inputs, labels, attention = [], [], []
    for example in examples:
        row, label = [], []
        for token in example["input_ids"]:
            if random.random() < 0.15:
                label.append(token)
                chance = random.random()
                row.append(MASK if chance < 0.8 else random.randrange(FIRST, vocabulary) if chance < 0.9 else token)
            else:
                label.append(-100)
                row.append(token)
        missing = length - len(row)
        inputs.append(row + [PAD] * missing)
        labels.append(label + [-100] * missing)
        attention.append([1] * len(row) + [0] * missing)
    return {
        "input_ids": torch.tensor(inputs),
        "labels": torch.tensor(labels),
        "attention_mask": torch.tensor(attention),
    }


def masked_whole(examples):
    inputs = torch.full((len(examples), length), PAD)
    for row, example in zip(inputs, examples):
        row[: len(example["input_ids"])] = example["input_ids"]
    attention = (inputs != PAD).long()
    chosen = (torch.rand(inputs.shape) < 0.15) & (inputs != PAD)
    labels = torch.where(chosen, inputs, -100)
    chance = torch.rand(inputs.shape)
    inputs = torch.where(chosen & (chance < 0.8), MASK, inputs)
    other = torch.randint(FIRST, vocabulary, inputs.shape)
    inputs = torch.where(chosen & (chance >= 0.8) & (chance < 0.9), other, inputs)
    return {"input_ids": inputs, "labels": labels, "attention_mask": attention}


random.seed(0)
torch.manual_seed(0)
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
with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        output_dir=folder,
        max_steps=arguments.steps,
        per_device_train_batch_size=batch,
        bf16=torch.cuda.is_available(),
        use_cpu=not torch.cuda.is_available(),
        optim="adamw_torch_fused" if torch.cuda.is_available() else "adamw_torch",
        logging_steps=50,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    Trainer(
        model=BertForMaskedLM(config),
        args=settings,
        train_dataset=Sentences(),
        data_collator=masked_whole if arguments.fixed else masked_by_token,
    ).train()
