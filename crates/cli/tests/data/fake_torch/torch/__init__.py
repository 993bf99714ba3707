"""As much of torch as the hook of `headroom record` touches, so that its tests need no PyTorch."""
import torch.amp
import torch.autograd.profiler
import torch.cuda
import torch.optim
import torch.profiler
