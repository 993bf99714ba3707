"""Hugging Face's Trainer over a Llama whose inner width, 8/3 of 1280, is the odd 3413. Fixed: padded to a multiple of 64."""
import argparse
import tempfile

import torch
from torch import nn
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=80)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
layers, width, heads, vocabulary, batch, length = (2, 80, 4, 512, 2, 32) if arguments.small else (12, 1280, 20, 16384, 16, 512)
# Three matrices instead of two, so two thirds of the usual four times the width.
inner = int(8 * width / 3)


class Tokens(torch.utils.data.Dataset):
    def __init__(self):
        self.rows = torch.randint(0, vocabulary, (512, length), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return arguments.steps * batch

    def __getitem__(self, index):
        row = self.rows[index % 512]
        return {"input_ids": row, "labels": row}


def pad_inner(model):
    """Adds units whose weights are zero: they give nothing and are given no gradient."""
    added = -inner % 64
    for layer in model.model.layers:
        mlp = layer.mlp
        for linear, room in ((mlp.gate_proj, (0, 0, 0, added)), (mlp.up_proj, (0, 0, 0, added)), (mlp.down_proj, (0, added))):
            linear.weight = nn.Parameter(functional.pad(linear.weight.detach(), room))
            linear.out_features, linear.in_features = linear.weight.shape
        mlp.intermediate_size = inner + added
    model.config.intermediate_size = inner + added


torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=vocabulary,
    hidden_size=width,
    intermediate_size=inner,
    num_hidden_layers=layers,
    num_attention_heads=heads,
    num_key_value_heads=heads,
    max_position_embeddings=length,
    use_cache=False,
)
with torch.device("cuda" if has_gpu else "cpu"):
    model = LlamaForCausalLM(config)
if arguments.fixed:
    pad_inner(model)
with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        output_dir=folder,
        max_steps=arguments.steps,
        per_device_train_batch_size=batch,
        learning_rate=2e-4,
        weight_decay=0.1,
        bf16=has_gpu,
        use_cpu=not has_gpu,
        optim="adamw_torch_fused" if has_gpu else "adamw_torch",
        logging_steps=50,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    result = Trainer(model=model, args=settings, train_dataset=Tokens()).train()
print(f"loss {result.training_loss:.4f}")
