"""Hugging Face's Trainer over a ViT whose pictures are resized as they are drawn, by no worker. Fixed: eight workers."""
import argparse
import tempfile

import numpy
import torch
from PIL import Image
from torchvision import transforms
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=80)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
layers, width, heads, size, batch, pool = (2, 64, 4, 32, 4, 16) if arguments.small else (12, 768, 12, 224, 32, 192)
workers = 2 if arguments.small else 8
BREEDS = 37


class Pets(torch.utils.data.Dataset):
    """Opened pictures, turned into tensors when they are asked for."""

    def __init__(self):
        draw = numpy.random.default_rng(0)
        self.pictures = [Image.fromarray(draw.integers(0, 256, (300, 400, 3), dtype=numpy.uint8)) for _ in range(pool)]
        self.transform = transforms.Compose(
            [
                transforms.Resize((size, size)),
                transforms.ToTensor(),
                transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
            ]
        )

    def __len__(self):
        return arguments.steps * batch

    def __getitem__(self, index):
        picture = self.pictures[index % len(self.pictures)].convert("RGB")
        return {"pixel_values": self.transform(picture), "labels": index % BREEDS}


def collate_fn(examples):
    return {
        "pixel_values": torch.stack([example["pixel_values"] for example in examples]),
        "labels": torch.tensor([example["labels"] for example in examples]),
    }


if __name__ == "__main__":
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        image_size=size,
        num_labels=BREEDS,
    )
    with torch.device("cuda" if has_gpu else "cpu"):
        model = ViTForImageClassification(config)
    more = {"dataloader_num_workers": workers} if arguments.fixed else {}
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            output_dir=folder,
            max_steps=arguments.steps,
            per_device_train_batch_size=batch,
            learning_rate=2e-4,
            bf16=has_gpu,
            use_cpu=not has_gpu,
            optim="adamw_torch_fused" if has_gpu else "adamw_torch",
            remove_unused_columns=False,
            logging_steps=50,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            **more,
        )
        result = Trainer(model=model, args=settings, train_dataset=Pets(), data_collator=collate_fn).train()
    print(f"loss {result.training_loss:.4f}")
