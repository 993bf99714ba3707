# words: Trainer
import gc

from library import WORD


class Mine(WORD):
    def compute_loss(self, model, inputs):
        gc.collect()  # <- TP204 # <~ TP204?
        return model(inputs)
