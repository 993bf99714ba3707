"""The names that scripts import."""
from torch.profiler.profiler import profile, schedule
