"""Holds the scaler alone."""
from torch.amp.grad_scaler import GradScaler
