#!/usr/bin/env python3
"""Makes small data for the public scripts of docs/benchmarks/optimize-scripts.md and optimize-draw.tsv, where there is no network.

    python3 bench/script_data.py --script NAME --source FOLDER
    python3 bench/script_data.py --text FILE --pictures FOLDER [--ddpm FOLDER] [--mingpt FOLDER] [--nanogpt FOLDER]

The first writes what the script NAME of optimize-draw.tsv reads, into FOLDER, where its repository lies. The second is for the older six.

Pictures: 64 JPEG files of 500 by 375 of coloured clouds with noise, linked into FOLDER/train (10 classes of 8,000) and FOLDER/val.
The DDPM gets a folder of the name that its script has written into it. minGPT and nanoGPT get the text as it is and as bytes.
"""
import argparse
import os
import pickle
import sys
from pathlib import Path

import numpy

import script_makers

DRAWINGS = 64
LANDSCAPES = "C:\\Users\\dome\\datasets\\landscape_img_folder"


def draw(folder):
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    generator = numpy.random.default_rng(0)
    for number in range(DRAWINGS):
        clouds = generator.integers(0, 256, (24, 32, 3), dtype=numpy.uint8)
        picture = numpy.asarray(Image.fromarray(clouds).resize((500, 375), Image.BICUBIC)).astype(numpy.int16)
        picture = picture + generator.integers(-12, 13, picture.shape)
        Image.fromarray(picture.clip(0, 255).astype(numpy.uint8)).save(folder / f"{number}.jpg", quality=90)


def link(drawings, folder, classes, count):
    for kind in range(classes):
        place = folder / f"class{kind:03d}"
        place.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            os.symlink(drawings / f"{(kind * 7 + number) % DRAWINGS}.jpg", place / f"{number:05d}.jpg")


def write_characters(text, folder):
    characters = sorted(set(text))
    numbers = {character: number for number, character in enumerate(characters)}
    encoded = numpy.array([numbers[character] for character in text], dtype=numpy.uint16)
    folder.mkdir(parents=True, exist_ok=True)
    cut = int(0.9 * len(encoded))
    encoded[:cut].tofile(folder / "train.bin")
    encoded[cut:].tofile(folder / "val.bin")
    about = {"vocab_size": len(characters), "stoi": numbers, "itos": dict(enumerate(characters))}
    (folder / "meta.pkl").write_bytes(pickle.dumps(about))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--script", help="a name in docs/benchmarks/optimize-draw.tsv")
    parser.add_argument("--source", type=Path, help="where that script's repository lies")
    parser.add_argument("--text", type=Path, help="a text of some 400 KB")
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--ddpm", type=Path, help="where ddpm.py lies")
    parser.add_argument("--mingpt", type=Path, help="the folder that chargpt.py is started in")
    parser.add_argument("--nanogpt", type=Path, help="where train.py lies")
    arguments = parser.parse_args()
    if bool(arguments.script) != bool(arguments.source):
        sys.exit("--script and --source belong together")
    if arguments.script:
        if arguments.script not in script_makers.MAKERS:
            sys.exit(f"{arguments.script} is none of {', '.join(script_makers.MAKERS)}")
        script_makers.MAKERS[arguments.script](arguments.source)
    if arguments.ddpm and not arguments.pictures:
        sys.exit("--ddpm needs --pictures, whose drawings it links")
    if (arguments.mingpt or arguments.nanogpt) and not arguments.text:
        sys.exit("--mingpt and --nanogpt need --text")
    if arguments.pictures:
        drawings = arguments.pictures.absolute() / "drawings"
        draw(drawings)
        link(drawings, arguments.pictures / "train", 10, 8000)
        link(drawings, arguments.pictures / "val", 10, 30)
        if arguments.ddpm:
            link(drawings, arguments.ddpm / LANDSCAPES, 1, 6000)
    if arguments.text:
        text = arguments.text.read_text(encoding="utf8")
        if arguments.mingpt:
            (arguments.mingpt / "input.txt").write_text(text, encoding="utf8")
        if arguments.nanogpt:
            write_characters(text, arguments.nanogpt / "data" / "shakespeare_char")


if __name__ == "__main__":
    main()
