"""Hugging Face's Trainer over a Whisper whose attention over 1500 frames is eager. Fixed: attn_implementation="sdpa"."""
import argparse
import tempfile

import torch
from transformers import Trainer, TrainingArguments, WhisperConfig, WhisperForConditionalGeneration

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
small = arguments.small
ears, mouths, width, heads, batch, frames = (2, 1, 64, 4, 2, 100) if small else (12, 4, 768, 12, 8, 3000)
vocabulary, words, clips = (500, 12, 8) if small else (51872, 64, 64)
BANDS = 80


class Clips(torch.utils.data.Dataset):
    """Log-mel spectrograms of half a minute each, with the words said in them."""

    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.sounds = torch.randn(clips, BANDS, frames, generator=generator)
        self.words = torch.randint(10, vocabulary, (clips, words), generator=generator)

    def __len__(self):
        return arguments.steps * batch

    def __getitem__(self, index):
        return {"input_features": self.sounds[index % clips], "labels": self.words[index % clips]}


torch.manual_seed(0)
config = WhisperConfig(
    vocab_size=vocabulary,
    num_mel_bins=BANDS,
    d_model=width,
    encoder_layers=ears,
    decoder_layers=mouths,
    encoder_attention_heads=heads,
    decoder_attention_heads=heads,
    encoder_ffn_dim=4 * width,
    decoder_ffn_dim=4 * width,
    max_source_positions=frames // 2,
    max_target_positions=128,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=3,
    use_cache=False,
    attn_implementation="sdpa" if arguments.fixed else "eager",
)
model = WhisperForConditionalGeneration(config)
with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        output_dir=folder,
        max_steps=arguments.steps,
        per_device_train_batch_size=batch,
        learning_rate=1e-4,
        bf16=has_gpu,
        use_cpu=not has_gpu,
        optim="adamw_torch_fused" if has_gpu else "adamw_torch",
        accelerator_config={"non_blocking": True},
        logging_nan_inf_filter=False,
        logging_steps=50,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    result = Trainer(model=model, args=settings, train_dataset=Clips()).train()
print(f"loss {result.training_loss:.4f}")
