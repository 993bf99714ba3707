# words: base.MyPreTrainedModel, transformers.BertModel, torch.nn.Sequential, torchvision.models.ResNet
# other: base.quux
import base
import torch
import torchvision
import transformers

class Net(WORD):
    def forward_train(self, x):
        loss = self.body(x.cuda())
        self.size = loss.item()  # <- TP101?
        return loss
