# words: default
import click
from torch.utils.data import DataLoader

@click.command()
@click.option("--num-workers", type=int, WORD=0)
def main(model, optimizer, images, num_workers):
    loader = DataLoader(images, num_workers=num_workers)  # <- TP301?
    for x in loader:
        model(x.cuda()).mean().backward()
        optimizer.step()
