"""Hugging Face's Trainer over a RoBERTa tagger that runs its model again to count accuracy. Fixed: the outputs at hand."""
import argparse
import tempfile

import torch
from transformers import RobertaConfig, RobertaForTokenClassification, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=90)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
layers, width, heads, vocabulary, batch, length = (2, 64, 4, 512, 4, 32) if arguments.small else (12, 768, 12, 30000, 32, 512)
FIRST, TAGS = 4, 9


class Tagged(torch.utils.data.Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.rows = torch.randint(FIRST, vocabulary, (512, length), generator=generator)
        self.tags = self.rows % TAGS

    def __len__(self):
        return arguments.steps * batch

    def __getitem__(self, index):
        return {"input_ids": self.rows[index % 512], "labels": self.tags[index % 512]}


class CountingTrainer(Trainer):
    """Counts the tokens that were tagged rightly while it trains."""

    right = 0

    def compute_loss(self, model, inputs, return_outputs=False, **more):
        if arguments.fixed:
            loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **more)
        else:
            loss = super().compute_loss(model, inputs, **more)
            outputs = model(**inputs)
        self.right = self.right + (outputs.logits.detach().argmax(-1) == inputs["labels"]).sum()
        return (loss, outputs) if return_outputs else loss


torch.manual_seed(0)
config = RobertaConfig(
    vocab_size=vocabulary,
    hidden_size=width,
    num_hidden_layers=layers,
    num_attention_heads=heads,
    intermediate_size=4 * width,
    max_position_embeddings=length + 2,
    type_vocab_size=1,
    bos_token_id=0,
    pad_token_id=1,
    eos_token_id=2,
    num_labels=TAGS,
)
with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        output_dir=folder,
        max_steps=arguments.steps,
        per_device_train_batch_size=batch,
        bf16=has_gpu,
        use_cpu=not has_gpu,
        optim="adamw_torch_fused" if has_gpu else "adamw_torch",
        logging_steps=50,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = CountingTrainer(model=RobertaForTokenClassification(config), args=settings, train_dataset=Tagged())
    result = trainer.train()
accuracy = int(trainer.right) / (arguments.steps * batch * length)
print(f"loss {result.training_loss:.4f} accuracy {accuracy:.4f}")
