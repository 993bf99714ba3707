# about TP30
import argparse


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--num_threads", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=10)
    return parser.parse_args()
