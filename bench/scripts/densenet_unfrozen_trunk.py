"""torchvision's DenseNet-121 trained only at its head, its trunk given gradients that nothing reads. Fixed: trunk frozen."""
import argparse

import torch
import torchvision

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=80)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
batch, side, pool, kinds = (4, 64, 16, 14) if arguments.small else (128, 224, 1024, 14)
torch.backends.cudnn.benchmark = True

torch.manual_seed(0)
if arguments.small:
    model = torchvision.models.DenseNet(8, (2, 2, 2, 2), 16)
else:
    model = torchvision.models.densenet121()
model.classifier = torch.nn.Linear(model.classifier.in_features, kinds)
model = model.to(device, memory_format=torch.channels_last)
if arguments.fixed:
    for parameter in model.features.parameters():
        parameter.requires_grad = False
# Only the new head is trained: the trunk stands for weights learnt elsewhere.
optimizer = torch.optim.Adam(model.classifier.parameters(), lr=1e-3, fused=has_gpu)

images = torch.randint(0, 256, (pool, 3, side, side), dtype=torch.uint8, device=device)
labels = torch.randint(0, 2, (pool, kinds), device=device).float()
for step in range(arguments.steps):
    start = step * batch % pool
    inputs = images[start : start + batch].float().div_(127.5).sub_(1.0).contiguous(memory_format=torch.channels_last)
    with torch.autocast(device, torch.bfloat16, enabled=has_gpu):
        scores = model(inputs)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(scores.float(), labels[start : start + batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.4f}")
