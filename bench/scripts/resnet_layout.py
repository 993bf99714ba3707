"""torchvision's ResNet-50 under autocast, its images laid out by plane. Fixed: channels last."""
import argparse

import torch
import torchvision

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
batch, size = (4, 32) if arguments.small else (256, 224)
layout = torch.channels_last if arguments.fixed else torch.contiguous_format
torch.manual_seed(0)
model = torchvision.models.resnet18() if arguments.small else torchvision.models.resnet50()
model = model.to(device, memory_format=layout)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
# Decoded by the device and kept there: nothing is loaded or copied per step.
images = [torch.randn(batch, 3, size, size, device=device).to(memory_format=layout) for _ in range(4)]
labels = torch.randint(0, 1000, (4, batch), device=device)
for step in range(arguments.steps):
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        loss = torch.nn.functional.cross_entropy(model(images[step % 4]), labels[step % 4])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
