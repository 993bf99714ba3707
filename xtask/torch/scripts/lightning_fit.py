"""Lightning: the module is called inside of `training_step`, and validation runs before the first step."""
import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch, index):
        inputs, targets = batch
        return nn.functional.mse_loss(self.net(inputs), targets)

    def validation_step(self, batch, index):
        self.log("validation", self.training_step(batch, index))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


lightning.seed_everything(0)
data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
trainer = lightning.Trainer(
    max_steps=8, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Module(), DataLoader(data, batch_size=8), DataLoader(data, batch_size=8))
