"""An optimizer that does nothing but tell its hooks."""
from torch.optim.optimizer import SGD
