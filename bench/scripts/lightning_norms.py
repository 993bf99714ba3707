"""Lightning with the norm of every gradient read back at every step. Fixed: one norm, kept on the device."""
import argparse
import logging
import warnings

import pytorch_lightning as lightning
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

warnings.filterwarnings("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
layers, width, batch, length = (2, 64, 4, 32) if arguments.small else (24, 1024, 16, 512)


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 16 if width > 64 else 4, 4 * width, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def training_step(self, batch, index):
        (inputs,) = batch
        return nn.functional.mse_loss(self.body(inputs), inputs)

    def on_before_optimizer_step(self, optimizer):
        gradients = [parameter.grad for parameter in self.parameters() if parameter.grad is not None]
        if arguments.fixed:
            self.norm = torch.stack(torch._foreach_norm(gradients)).norm()
        else:
            self.norm = sum(gradient.norm().item() ** 2 for gradient in gradients) ** 0.5

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4, fused=torch.cuda.is_available())


torch.manual_seed(0)
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(torch.randn(32 * batch, length, width)),
    batch_size=batch,
    pin_memory=torch.cuda.is_available(),
)
trainer = lightning.Trainer(
    max_steps=arguments.steps,
    max_epochs=-1,
    precision="bf16-true" if torch.cuda.is_available() else "32",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    accelerator="gpu" if torch.cuda.is_available() else "cpu",
    devices=1,
)
trainer.fit(Model(), loader)
