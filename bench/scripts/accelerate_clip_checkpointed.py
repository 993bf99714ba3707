"""Accelerate over a CLIP with gradient checkpointing switched on though memory is free. Fixed: activations kept."""
import argparse

import torch
from accelerate import Accelerator
from torch.nn import functional
from transformers import CLIPConfig, CLIPModel

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
small = arguments.small
layers, picture_width, text_width, shared = (2, 64, 32, 16) if small else (12, 768, 512, 512)
batch, side, words = (4, 32, 8) if small else (256, 224, 77)
vocabulary, PATCH, BATCHES = (128 if small else 49408), 16, 4

torch.manual_seed(0)
accelerator = Accelerator(mixed_precision="bf16" if has_gpu else "no", cpu=not has_gpu)
device = accelerator.device
config = CLIPConfig(
    text_config={
        "vocab_size": vocabulary,
        "hidden_size": text_width,
        "intermediate_size": 4 * text_width,
        "num_hidden_layers": layers,
        "num_attention_heads": text_width // 64 or 1,
        "max_position_embeddings": words,
        "hidden_act": "gelu",
        "bos_token_id": vocabulary - 2,
        "eos_token_id": vocabulary - 1,
        "pad_token_id": vocabulary - 1,
        "projection_dim": shared,
    },
    vision_config={
        "hidden_size": picture_width,
        "intermediate_size": 4 * picture_width,
        "num_hidden_layers": layers,
        "num_attention_heads": picture_width // 64,
        "image_size": side,
        "patch_size": PATCH,
        "hidden_act": "gelu",
        "projection_dim": shared,
    },
    projection_dim=shared,
    attn_implementation="sdpa",
)
model = CLIPModel(config)
if not arguments.fixed:
    model.gradient_checkpointing_enable()
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, betas=(0.9, 0.98), weight_decay=0.2, fused=has_gpu)
model, optimizer = accelerator.prepare(model, optimizer)

generator = torch.Generator(device).manual_seed(1)
pictures = torch.randint(0, 256, (BATCHES, batch, 3, side, side), generator=generator, device=device, dtype=torch.uint8)
captions = torch.randint(0, vocabulary - 2, (BATCHES, batch, words), generator=generator, device=device)
captions[:, :, 0], captions[:, :, -1] = vocabulary - 2, vocabulary - 1
pairs = torch.arange(batch, device=device)
for step in range(1, arguments.steps + 1):
    picture = pictures[step % BATCHES].float() / 127.5 - 1
    scores = model(input_ids=captions[step % BATCHES], pixel_values=picture).logits_per_image.float()
    loss = (functional.cross_entropy(scores, pairs) + functional.cross_entropy(scores.t(), pairs)) / 2
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 25 == 0 or step == arguments.steps:
        accelerator.print(f"step {step} loss {loss.item():.4f}")
