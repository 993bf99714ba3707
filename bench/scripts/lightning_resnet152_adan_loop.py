"""Lightning over torchvision's ResNet-152 whose Adan goes from tensor to tensor. Fixed: torch._foreach calls."""
import argparse
import logging
import warnings

import pytorch_lightning as lightning
import torch
import torchvision

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=110)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

warnings.filterwarnings("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
has_gpu = torch.cuda.is_available()
batch, side = (4, 32) if arguments.small else (64, 224)
torch.backends.cudnn.benchmark = True


class Adan(torch.optim.Optimizer):
    """Adaptive Nesterov momentum: means of the gradient, of its change and of the square of both."""

    def __init__(self, parameters, lr=2e-4, betas=(0.98, 0.92, 0.99), eps=1e-8, decay=0.02):
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "decay": decay})

    def step(self, closure=None):
        loss, group = closure(), self.param_groups[0]
        with torch.no_grad():
            for p in group["params"]:
                if not self.state[p]:
                    self.state[p] = {name: torch.zeros_like(p) for name in ("mean", "change", "square")}
                    self.state[p]["before"] = -p.grad
            (together if arguments.fixed else one_by_one)(self.state, **group)
        return loss


def one_by_one(state, params, lr, betas, eps, decay, **unused):
    first, second, third = betas
    for p in params:
        mean, change, square, before = state[p].values()
        before.add_(p.grad)
        mean.lerp_(p.grad, 1 - first)
        change.lerp_(before, 1 - second)
        before.mul_(second).add_(p.grad)
        square.mul_(third).addcmul_(before, before, value=1 - third)
        under = square.sqrt().add_(eps)
        p.addcdiv_(mean, under, value=-lr)
        p.addcdiv_(change, under, value=-lr * second)
        p.div_(1 + lr * decay)
        before.copy_(p.grad).neg_()


def together(state, params, lr, betas, eps, decay, **unused):
    first, second, third = betas
    grads = [p.grad for p in params]
    mean, change, square, before = (list(kind) for kind in zip(*(state[p].values() for p in params)))
    torch._foreach_add_(before, grads)
    torch._foreach_lerp_(mean, grads, 1 - first)
    torch._foreach_lerp_(change, before, 1 - second)
    torch._foreach_mul_(before, second)
    torch._foreach_add_(before, grads)
    torch._foreach_mul_(square, third)
    torch._foreach_addcmul_(square, before, before, value=1 - third)
    under = torch._foreach_sqrt(square)
    torch._foreach_add_(under, eps)
    torch._foreach_addcdiv_(params, mean, under, value=-lr)
    torch._foreach_addcdiv_(params, change, under, value=-lr * second)
    torch._foreach_div_(params, 1 + lr * decay)
    torch._foreach_copy_(before, grads)
    torch._foreach_neg_(before)


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torchvision.models.resnet152().to(memory_format=torch.channels_last)

    def training_step(self, batch, index):
        pictures, labels = batch
        pictures = (pictures.float() / 127.5 - 1.0).contiguous(memory_format=torch.channels_last)
        self.last = torch.nn.functional.cross_entropy(self.net(pictures), labels, label_smoothing=0.1)
        return self.last

    def configure_optimizers(self):
        return Adan(self.parameters())


torch.manual_seed(0)
pictures = torch.randint(0, 256, (4, batch, 3, side, side), dtype=torch.uint8, pin_memory=has_gpu)
labels = torch.randint(0, 1000, (4, batch), pin_memory=has_gpu)
module = Classifier()
trainer = lightning.Trainer(
    max_epochs=1,
    precision="bf16-mixed" if has_gpu else "32-true",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    accelerator="gpu" if has_gpu else "cpu",
)
batches = [(pictures[step % 4], labels[step % 4]) for step in range(arguments.steps)]
trainer.fit(module, torch.utils.data.DataLoader(batches, batch_size=None))
print(f"loss {module.last.item():.4f}")
