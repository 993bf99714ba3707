# words: diffusers.UNet.from_config, diffusers.UNet.from_pretrained, timm.create_model, torch_geometric.nn.GCNConv, torchvision.models.resnet18
# other: diffusers.quux
import diffusers, timm, torch, torch_geometric, torchvision

def train(loader, optimizer):
    body = WORD("base")
    for batch in loader:
        loss = body(batch.cuda())
        print(loss)  # <- TP103
        loss.backward()
        optimizer.step()
