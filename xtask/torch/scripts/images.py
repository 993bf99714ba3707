"""A convolutional net that sets cuDNN's and TF32's switches against speed."""
import torch
from torch import nn

torch.manual_seed(0)
torch.backends.cudnn.benchmark = False
torch.backends.cuda.matmul.allow_tf32 = False
model = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.LazyLinear(4)
)
model(torch.randn(2, 3, 8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for _ in range(8):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(torch.randn(4, 3, 8, 8)), torch.randint(4, (4,)))
    loss.backward()
    optimizer.step()
