"""Hugging Face's Trainer over a Llama trained at its default, single precision. Fixed: bf16=True."""
import argparse
import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
layers, width, heads, vocabulary, batch, length = (2, 64, 4, 512, 4, 32) if arguments.small else (6, 1024, 16, 16384, 16, 512)


class Tokens(torch.utils.data.Dataset):
    def __init__(self):
        self.rows = torch.randint(0, vocabulary, (1024, length), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return arguments.steps * batch

    def __getitem__(self, index):
        row = self.rows[index % 1024]
        return {"input_ids": row, "labels": row}


torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=vocabulary,
    hidden_size=width,
    intermediate_size=11 * width // 4,
    num_hidden_layers=layers,
    num_attention_heads=heads,
    num_key_value_heads=heads,
    max_position_embeddings=length,
    use_cache=False,
    bos_token_id=0,
    eos_token_id=0,
)
with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        output_dir=folder,
        max_steps=arguments.steps,
        per_device_train_batch_size=batch,
        bf16=arguments.fixed,
        use_cpu=not has_gpu,
        optim="adamw_torch_fused" if has_gpu else "adamw_torch",
        logging_steps=50,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    result = Trainer(model=LlamaForCausalLM(config), args=settings, train_dataset=Tokens()).train()
print(f"loss {result.training_loss:.4f}")
