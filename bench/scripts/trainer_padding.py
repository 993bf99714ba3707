"""Hugging Face's Trainer over a BERT classifier that pads every batch to 512. Fixed: padded to the longest of the batch."""
import argparse
import random
import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=90)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
layers, width, heads, vocabulary, batch, length = (2, 64, 4, 512, 4, 64) if arguments.small else (8, 768, 12, 16384, 64, 512)
PAD, FIRST, KINDS = 0, 4, 4


class Reviews(torch.utils.data.Dataset):
    """Reviews of a twentieth to half of the longest length, as a tokenizer leaves them."""

    def __init__(self):
        draw = random.Random(0)
        generator = torch.Generator().manual_seed(0)
        counts = [draw.randint(length // 20, length // 2) for _ in range(1024)]
        self.rows = [torch.randint(FIRST, vocabulary, (count,), generator=generator) for count in counts]
        self.labels = [draw.randrange(KINDS) for _ in counts]

    def __len__(self):
        return arguments.steps * batch

    def __getitem__(self, index):
        return {"input_ids": self.rows[index % 1024], "labels": self.labels[index % 1024]}


def padded(examples):
    rows = [example["input_ids"] for example in examples]
    longest = max(len(row) for row in rows)
    # A multiple of 8 keeps the products aligned.
    inputs = torch.full((len(rows), -(-longest // 8) * 8 if arguments.fixed else length), PAD)
    for target, row in zip(inputs, rows):
        target[: len(row)] = row
    labels = torch.tensor([example["labels"] for example in examples])
    return {"input_ids": inputs, "attention_mask": (inputs != PAD).long(), "labels": labels}


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
    num_labels=KINDS,
)
with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        output_dir=folder,
        max_steps=arguments.steps,
        per_device_train_batch_size=batch,
        bf16=has_gpu,
        use_cpu=not has_gpu,
        optim="adamw_torch_fused" if has_gpu else "adamw_torch",
        logging_steps=50,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    model = BertForSequenceClassification(config)
    result = Trainer(model=model, args=settings, train_dataset=Reviews(), data_collator=padded).train()
print(f"loss {result.training_loss:.4f}")
