# words: checkpoint, demo, eval, evaluate, evaluation, generate, generation, infer, inference, plot, predict, prediction, sample, test, testing, val, valid, validate, validation, visualization, visualize
from torch.utils.data import DataLoader

def loaders(images):
    return DataLoader(images, batch_size=64)

def my_WORD_x(images):
    return DataLoader(images, batch_size=16)  # <- TP604
