# words: PIL, argparse, collections, csv, cv2, datetime, json, logging, matplotlib, os, pandas, pathlib, pickle, re, scipy, shutil, sklearn, statistics, sys, torchmetrics, wandb, yaml
import WORD

def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        seen = WORD.collect(loss)
        kept = seen.to("cpu")  # <~ TP102
