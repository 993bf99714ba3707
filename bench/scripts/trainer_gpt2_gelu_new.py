"""Hugging Face's Trainer over a GPT-2 with its default gelu_new, written out in eight calls. Fixed: gelu_pytorch_tanh, in one."""
import argparse
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=110)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
small = (2, 64, 4, 512, 2, 64)
layers, width, heads, vocabulary, batch, length = small if arguments.small else (12, 768, 12, 50304, 8, 1024)


class Tokens(torch.utils.data.Dataset):
    def __init__(self):
        self.rows = torch.randint(0, vocabulary, (512, length), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return arguments.steps * batch

    def __getitem__(self, index):
        row = self.rows[index % 512]
        return {"input_ids": row, "labels": row}


torch.manual_seed(0)
config = GPT2Config(
    vocab_size=vocabulary,
    n_layer=layers,
    n_embd=width,
    n_head=heads,
    n_positions=length,
    attn_pdrop=0.0,
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    bos_token_id=0,
    eos_token_id=0,
    use_cache=False,
    activation_function="gelu_pytorch_tanh" if arguments.fixed else "gelu_new",
)
with torch.device("cuda" if has_gpu else "cpu"):
    model = GPT2LMHeadModel(config)
with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        output_dir=folder,
        max_steps=arguments.steps,
        per_device_train_batch_size=batch,
        learning_rate=1e-4,
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
