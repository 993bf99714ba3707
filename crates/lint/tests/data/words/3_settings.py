# words: C, CFG, FLAGS, _C, arg, args, cfg, conf, config, flags, h, hp, hparams, hps, opt, options, opts, params, settings
import torch


def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        past = torch.triu(torch.ones(WORD.reach, WORD.reach))  # <- TP201
