"""Accelerate over a BERT that files notes under codes, with five torchmetrics each step. Fixed: at every fiftieth."""
import argparse
import warnings

import torch
from accelerate import Accelerator
from torchmetrics import MetricCollection
from torchmetrics import classification as metrics_of
from transformers import BertConfig, BertForSequenceClassification

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

warnings.filterwarnings("ignore")
has_gpu = torch.cuda.is_available()
layers, width, heads, batch, length, codes = (2, 32, 4, 4, 16, 20) if arguments.small else (12, 768, 12, 24, 512, 1000)
vocabulary, EVERY, BATCHES = (128 if arguments.small else 30528), 50, 4

torch.manual_seed(0)
accelerator = Accelerator(mixed_precision="bf16" if has_gpu else "no", cpu=not has_gpu)
device = accelerator.device
config = BertConfig(
    vocab_size=vocabulary,
    hidden_size=width,
    num_hidden_layers=layers,
    num_attention_heads=heads,
    intermediate_size=4 * width,
    max_position_embeddings=length,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    num_labels=codes,
    problem_type="multi_label_classification",
    attn_implementation="sdpa",
)
model = BertForSequenceClassification(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5, fused=has_gpu)
model, optimizer = accelerator.prepare(model, optimizer)
measured = MetricCollection({
    "f1_micro": metrics_of.MultilabelF1Score(codes, average="micro"),
    "f1_macro": metrics_of.MultilabelF1Score(codes, average="macro"),
    "auroc": metrics_of.MultilabelAUROC(codes, thresholds=100),
    "precision": metrics_of.MultilabelAveragePrecision(codes, thresholds=100),
    "ranking": metrics_of.MultilabelRankingAveragePrecision(codes),
}).to(device)

generator = torch.Generator(device).manual_seed(1)
notes = torch.randint(0, vocabulary, (BATCHES, batch, length), generator=generator, device=device)
filed = (torch.rand(BATCHES, batch, codes, generator=generator, device=device) < 0.02).long()
for step in range(1, arguments.steps + 1):
    labels = filed[step % BATCHES]
    outputs = model(input_ids=notes[step % BATCHES], labels=labels.float())
    accelerator.backward(outputs.loss)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if not arguments.fixed or step % EVERY == 0 or step == arguments.steps:
        values = measured(outputs.logits.detach().float().sigmoid(), labels)
    if step % EVERY == 0 or step == arguments.steps:
        shown = " ".join(f"{name} {value.item():.4f}" for name, value in values.items())
        accelerator.print(f"step {step} loss {outputs.loss.item():.4f} {shown}")
        measured.reset()
