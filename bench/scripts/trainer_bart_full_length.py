"""Hugging Face's Trainer over a BART whose articles are all padded to 1024. Fixed: padded to the longest of the batch."""
import argparse
import random
import tempfile

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import BartConfig, BartForConditionalGeneration, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
small = arguments.small
layers, width, heads, vocabulary, batch = (2, 32, 4, 128, 4) if small else (6, 768, 12, 50304, 96)
longest_article, longest_summary, articles = (64, 16, 32) if small else (1024, 128, 1536)
START, PAD, END, FIRST, IGNORED = 0, 1, 2, 4, -100


class Articles(torch.utils.data.Dataset):
    """News of an eighth to 45% of the longest article, each with a summary, as a tokenizer leaves them."""

    def __init__(self):
        draw = random.Random(0)
        generator = torch.Generator().manual_seed(0)

        def text(least, most):
            return torch.randint(FIRST, vocabulary, (draw.randint(least, most),), generator=generator)

        self.articles = [text(longest_article // 8, longest_article * 45 // 100) for _ in range(articles)]
        self.summaries = [text(longest_summary // 2, longest_summary) for _ in range(articles)]

    def __len__(self):
        return arguments.steps * batch

    def __getitem__(self, index):
        return {"input_ids": self.articles[index % articles], "labels": self.summaries[index % articles]}


def together(rows, filler, longest):
    filled = pad_sequence(rows, batch_first=True, padding_value=filler)
    # A multiple of 8 keeps the products aligned.
    wanted = -(-filled.shape[1] // 8) * 8 if arguments.fixed else longest
    return torch.nn.functional.pad(filled, (0, wanted - filled.shape[1]), value=filler)


def padded(examples):
    inputs = together([example["input_ids"] for example in examples], PAD, longest_article)
    labels = together([example["labels"] for example in examples], IGNORED, longest_summary)
    return {"input_ids": inputs, "attention_mask": (inputs != PAD).long(), "labels": labels}


torch.manual_seed(0)
config = BartConfig(
    vocab_size=vocabulary,
    max_position_embeddings=longest_article,
    d_model=width,
    encoder_layers=layers,
    decoder_layers=layers,
    encoder_attention_heads=heads,
    decoder_attention_heads=heads,
    encoder_ffn_dim=4 * width,
    decoder_ffn_dim=4 * width,
    dropout=0.0,
    attention_dropout=0.0,
    activation_dropout=0.0,
    bos_token_id=START,
    pad_token_id=PAD,
    eos_token_id=END,
    decoder_start_token_id=END,
    use_cache=False,
    attn_implementation="sdpa",
)
model = BartForConditionalGeneration(config)
with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        output_dir=folder,
        max_steps=arguments.steps,
        per_device_train_batch_size=batch,
        learning_rate=3e-5,
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
    result = Trainer(model=model, args=settings, train_dataset=Articles(), data_collator=padded).train()
print(f"loss {result.training_loss:.4f}")
