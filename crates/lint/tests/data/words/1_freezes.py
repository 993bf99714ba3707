# words: requires_grad_
def measure(model, x, net):
    net.eval()
    net.WORD(False)
    score = net(x).mean().item()  # <- TP101
    print(score)

def train(model, net, loader, optimizer):
    for x in loader:
        x = x.cuda()
        model(x).mean().backward()
        optimizer.step()
        measure(model, x, net)
