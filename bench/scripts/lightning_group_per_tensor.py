"""Lightning over a RoBERTa whose layer-wise rates make a group of every tensor. Fixed: a group per rate and decay."""
import argparse
import logging
import warnings

import pytorch_lightning as lightning
import torch
from transformers import RobertaConfig, RobertaForSequenceClassification

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

warnings.filterwarnings("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
has_gpu = torch.cuda.is_available()
layers, width, heads, vocabulary, batch, length = (2, 64, 4, 512, 4, 32) if arguments.small else (24, 1024, 16, 30000, 16, 256)
RATE, LAYER_DECAY, KINDS, FIRST = 2e-5, 0.9, 5, 4


class Essays(torch.utils.data.Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.rows = torch.randint(FIRST, vocabulary, (512, length), generator=generator)
        self.grades = torch.randint(0, KINDS, (512,), generator=generator)

    def __len__(self):
        return arguments.steps * batch

    def __getitem__(self, index):
        return self.rows[index % 512], self.grades[index % 512]


class Grader(lightning.LightningModule):
    def __init__(self):
        super().__init__()
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
            num_labels=KINDS,
        )
        self.model = RobertaForSequenceClassification(config)

    def training_step(self, batch, index):
        rows, grades = batch
        loss = self.model(input_ids=rows, labels=grades).loss
        self.last_loss = loss.detach()
        return loss

    def configure_optimizers(self):
        """The nearer to the input, the smaller the rate; no decay for norms and biases."""
        groups = []
        for name, parameter in self.model.named_parameters():
            if "encoder.layer." in name:
                above = layers - 1 - int(name.split("encoder.layer.")[1].split(".")[0])
            else:
                above = layers if "embeddings" in name else 0
            decay = 0.0 if name.endswith("bias") or "LayerNorm" in name else 0.01
            groups.append({"params": [parameter], "lr": RATE * LAYER_DECAY**above, "weight_decay": decay})
        if arguments.fixed:
            together = {}
            for group in groups:
                together.setdefault((group["lr"], group["weight_decay"]), []).extend(group["params"])
            groups = [{"params": params, "lr": lr, "weight_decay": decay} for (lr, decay), params in together.items()]
        return torch.optim.AdamW(groups, fused=has_gpu)


torch.manual_seed(0)
with torch.device("cuda" if has_gpu else "cpu"):
    module = Grader().train()
trainer = lightning.Trainer(
    max_steps=arguments.steps,
    max_epochs=-1,
    precision="bf16-mixed",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    accelerator="gpu" if has_gpu else "cpu",
    devices=1,
)
trainer.fit(module, torch.utils.data.DataLoader(Essays(), batch_size=batch, pin_memory=has_gpu))
print(f"loss {module.last_loss.item():.4f}")
