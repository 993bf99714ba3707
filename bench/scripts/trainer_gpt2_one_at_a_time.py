"""Hugging Face's Trainer over a GPT-2 fed one text at a time, four to an update. Fixed: the four as one batch."""
import argparse
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
small = arguments.small
layers, width, heads, length, vocabulary, texts = (2, 64, 4, 32, 512, 16) if small else (12, 768, 12, 1024, 50304, 256)
UPDATE = 4
together = UPDATE if arguments.fixed else 1


class Texts(torch.utils.data.Dataset):
    """Texts cut to one length, as token numbers."""

    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(10, vocabulary, (texts, length), generator=generator)

    def __len__(self):
        return arguments.steps * UPDATE

    def __getitem__(self, index):
        tokens = self.tokens[index % texts]
        return {"input_ids": tokens, "labels": tokens}


torch.manual_seed(0)
config = GPT2Config(
    vocab_size=vocabulary,
    n_positions=length,
    n_embd=width,
    n_layer=layers,
    n_head=heads,
    activation_function="gelu_pytorch_tanh",
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    attn_pdrop=0.0,
    bos_token_id=0,
    eos_token_id=0,
    use_cache=False,
    attn_implementation="sdpa",
)
model = GPT2LMHeadModel(config)
with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        output_dir=folder,
        max_steps=arguments.steps,
        per_device_train_batch_size=together,
        gradient_accumulation_steps=UPDATE // together,
        learning_rate=3e-4,
        lr_scheduler_type="cosine",
        bf16=has_gpu,
        use_cpu=not has_gpu,
        optim="adamw_torch_fused" if has_gpu else "adamw_torch",
        accelerator_config={"non_blocking": True},
        logging_nan_inf_filter=False,
        logging_steps=50,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=0,
    )
    result = Trainer(model=model, args=settings, train_dataset=Texts()).train()
print(f"loss {result.training_loss:.4f}")
