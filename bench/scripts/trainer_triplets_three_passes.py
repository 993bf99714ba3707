"""Hugging Face's Trainer over a BERT that embeds anchors, positives and negatives in a pass each. Fixed: all three in one pass."""
import argparse
import tempfile

import torch
from torch.nn import functional
from transformers import BertConfig, BertModel, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=110)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
small = (2, 64, 4, 512, 4, 16)
layers, width, heads, vocabulary, batch, length = small if arguments.small else (24, 1024, 16, 30528, 16, 64)
MARGIN = 0.2


class Triplets(torch.utils.data.Dataset):
    def __init__(self):
        self.rows = torch.randint(5, vocabulary, (512, 3, length), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return arguments.steps * batch

    def __getitem__(self, index):
        anchor, positive, negative = self.rows[index % 512]
        return {"anchor": anchor, "positive": positive, "negative": negative}


class Embedding(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **more):
        texts = [inputs["anchor"], inputs["positive"], inputs["negative"]]
        if arguments.fixed:
            anchor, positive, negative = self.embedded(model, torch.cat(texts)).chunk(3)
        else:
            anchor, positive, negative = (self.embedded(model, text) for text in texts)
        near, far = ((anchor * other).sum(dim=1) for other in (positive, negative))
        loss = functional.relu(far - near + MARGIN).mean()
        return (loss, {"anchor": anchor}) if return_outputs else loss

    def embedded(self, model, text):
        return functional.normalize(model(input_ids=text).last_hidden_state.float().mean(dim=1), dim=1)


torch.manual_seed(0)
config = BertConfig(
    vocab_size=vocabulary,
    hidden_size=width,
    num_hidden_layers=layers,
    num_attention_heads=heads,
    intermediate_size=4 * width,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
with torch.device("cuda" if has_gpu else "cpu"):
    model = BertModel(config, add_pooling_layer=False)
with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        output_dir=folder,
        max_steps=arguments.steps,
        per_device_train_batch_size=batch,
        learning_rate=2e-5,
        bf16=has_gpu,
        use_cpu=not has_gpu,
        optim="adamw_torch_fused" if has_gpu else "adamw_torch",
        remove_unused_columns=False,
        logging_steps=50,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    result = Embedding(model=model, args=settings, train_dataset=Triplets()).train()
print(f"loss {result.training_loss:.4f}")
