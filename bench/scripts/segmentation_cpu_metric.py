"""A plain loop over torchvision's FCN whose confusion matrix is counted by NumPy each step. Fixed: counted on the device."""
import argparse

import numpy
import torch
import torchvision
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=80)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
classes, batch, side = (21, 2, 64) if arguments.small else (21, 12, 512)
torch.backends.cudnn.benchmark = True
torch.manual_seed(0)
with torch.device(device):
    model = torchvision.models.segmentation.fcn_resnet50(weights=None, weights_backbone=None, num_classes=classes)
    images = torch.randn(4, batch, 3, side, side)
    masks = torch.randint(0, classes, (4, batch, side, side))
model = model.to(memory_format=torch.channels_last).train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=device == "cuda")
confusion = torch.zeros(classes, classes, device=device) if arguments.fixed else numpy.zeros((classes, classes))


def counted_by_numpy(predicted, wanted):
    predicted, wanted = predicted.cpu().numpy(), wanted.cpu().numpy()
    known = (wanted >= 0) & (wanted < classes)
    pairs = classes * wanted[known] + predicted[known]
    return numpy.bincount(pairs, minlength=classes**2).reshape(classes, classes)


def counted_on_device(predicted, wanted):
    known = (wanted >= 0) & (wanted < classes)
    pairs = torch.where(known, classes * wanted + predicted, -1).float()
    return torch.histc(pairs, bins=classes**2, min=-0.5, max=classes**2 - 0.5).view(classes, classes)


for step in range(arguments.steps):
    inputs = images[step % 4].contiguous(memory_format=torch.channels_last)
    targets = masks[step % 4]
    with torch.autocast(device, torch.bfloat16):
        logits = model(inputs)["out"]
        loss = functional.cross_entropy(logits, targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    predicted = logits.detach().argmax(dim=1)
    confusion += (counted_on_device if arguments.fixed else counted_by_numpy)(predicted, targets)
confusion = torch.as_tensor(confusion).double()
union = confusion.sum(0) + confusion.sum(1) - confusion.diag()
print(f"loss {loss.item():.4f} mean IoU {(confusion.diag() / union).mean().item():.4f} of {confusion.sum().item():.0f} pixels")
