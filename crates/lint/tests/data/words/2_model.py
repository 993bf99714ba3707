# words: actor, agent, backbone, classifier, critic, ddp, decoder, discriminator, encoder, generator, model, module, net, network, policy, student, teacher, transformer, unet, vae
import torch


def train(my_WORD, loader, optimizer, writer):
    for x, y in loader:
        loss = torch.square(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        writer.add_scalar("score", my_WORD(y))  # <- TP103
