# words: base.OwnDataset, ImageFolder
# other: base.quux
import base
import torch
from torchvision.datasets import ImageFolder

class Images(WORD):
    def __getitem__(self, index):
        image = self.images[index]
        return image.cuda()  # <- TP306?
