"""Hugging Face's Trainer over adapters in a Qwen2 whose own weights are left unfrozen. Fixed: requires_grad_(False)."""
import argparse
import tempfile

import torch
from torch import nn
from transformers import Qwen2Config, Qwen2ForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
layers, width, heads, vocabulary = (2, 64, 4, 512) if arguments.small else (12, 1536, 12, 32768)
batch, length = (4, 32) if arguments.small else (24, 512)
RANK, ROWS = 16, 1024


class Adapted(nn.Module):
    """A linear layer with a trained product of low rank beside it."""

    def __init__(self, base):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, RANK, bias=False)
        self.up = nn.Linear(RANK, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + 2.0 * self.up(self.down(x))


class Tokens(torch.utils.data.Dataset):
    def __init__(self):
        self.rows = torch.randint(0, vocabulary, (ROWS, length), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return arguments.steps * batch

    def __getitem__(self, index):
        row = self.rows[index % ROWS]
        return {"input_ids": row, "labels": row}


torch.manual_seed(0)
config = Qwen2Config(
    vocab_size=vocabulary,
    hidden_size=width,
    intermediate_size=4 * width,
    num_hidden_layers=layers,
    num_attention_heads=heads,
    num_key_value_heads=heads // 4,
    max_position_embeddings=length,
    use_cache=False,
    tie_word_embeddings=False,
    bos_token_id=0,
    eos_token_id=0,
    attn_implementation="sdpa",
)
model = Qwen2ForCausalLM(config)
if arguments.fixed:
    model.requires_grad_(False)
trained = []
for layer in model.model.layers:
    for name in ("q_proj", "v_proj"):
        adapted = Adapted(getattr(layer.self_attn, name))
        setattr(layer.self_attn, name, adapted)
        trained += [adapted.down.weight, adapted.up.weight]
optimizer = torch.optim.AdamW(trained, lr=2e-4, fused=has_gpu)
with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        output_dir=folder,
        max_steps=arguments.steps,
        per_device_train_batch_size=batch,
        max_grad_norm=0.0,
        bf16=has_gpu,
        use_cpu=not has_gpu,
        accelerator_config={"non_blocking": True},
        logging_nan_inf_filter=False,
        logging_steps=50,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=0,
    )
    result = Trainer(model=model, args=settings, train_dataset=Tokens(), optimizers=(optimizer, None)).train()
print(f"loss {result.training_loss:.4f}")
