# words: requires_grad
def measure(model, x, net):
    net.eval()
    for weight in net.parameters():
        weight.WORD = False
    score = net(x).mean().item()  # <- TP101
    print(score)

def train(model, net, loader, optimizer):
    for x in loader:
        x = x.cuda()
        model(x).mean().backward()
        optimizer.step()
        measure(model, x, net)
