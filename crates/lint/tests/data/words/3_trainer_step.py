# words: compute_loss
import gc

from transformers import Trainer


class Mine(Trainer):
    def WORD(self, model, inputs):
        gc.collect()  # <- TP204
        return model(inputs)
