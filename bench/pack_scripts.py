#!/usr/bin/env python3
"""Packs what a machine without a network needs for some scripts of docs/benchmarks/optimize-draw.tsv.

    python3 bench/pack_scripts.py NAME... --to FOLDER --sources FOLDER [--packages FOLDER]

`--sources` holds a checkout of each repository at the commit of the list, named OWNER+REPOSITORY. `--packages` holds the carried packages as
`pip install --no-deps --target FOLDER` has written them. FOLDER gets sources/NAME for each script, packages, the makers of data and the
clock. Its size is printed, and must be below 40 MiB.
"""
import argparse
import importlib.metadata
import shutil
import sys
from pathlib import Path

import draw_scripts

HERE = Path(__file__).resolve().parent
OWN = ["script_data.py", "script_makers.py", "independent_clock.py"]
# Pictures, films, notebooks and checkpoints of a repository, which no script of the list reads.
UNUSED = {".gif", ".ipynb", ".jpeg", ".jpg", ".mp4", ".pdf", ".png", ".pth", ".pt", ".svg", ".zip"}
LARGEST = 4 << 20
MOST = 40 << 20


def left_out(folder, names):
    files = [Path(folder) / name for name in names]
    large = lambda file: file.is_file() and (file.suffix.lower() in UNUSED or file.stat().st_size > LARGEST)
    return {file.name for file in files if file.name in (".git", "__pycache__") or file.is_symlink() or large(file)}


def copy(source, target):
    shutil.copytree(source, target, ignore=left_out)


def carry(packages, wanted, target):
    """Copies the files of the wanted packages alone, as their records name them."""
    found = {package.name.lower().replace("_", "-"): package for package in importlib.metadata.distributions(path=[str(packages)])}
    for name in wanted:
        if name.lower() not in found:
            sys.exit(f"{name} is not in {packages}")
        for file in found[name.lower()].files:
            source = packages / file
            # Programs and typings lie elsewhere or are not read.
            if ".." in file.parts or not source.is_file() or source.suffix in (".pyc", ".pyi"):
                continue
            place = target / file
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, place)


def size(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--packages", type=Path)
    arguments = parser.parse_args()
    rows = {row["name"]: row for row in draw_scripts.read()}
    unknown = [name for name in arguments.names if name not in rows]
    if unknown:
        sys.exit(f"not in the list: {', '.join(unknown)}")
    if arguments.to.exists():
        sys.exit(f"{arguments.to} is there already")
    for name in arguments.names:
        copy(arguments.sources / rows[name]["repository"].replace("/", "+"), arguments.to / "sources" / name)
        print(f"{name}: {size(arguments.to / 'sources' / name) / 1e6:.1f} MB")
    wanted = sorted({package for name in arguments.names for package in rows[name]["carried"].split()} - {"-"})
    if wanted and not arguments.packages:
        sys.exit(f"--packages is needed for {', '.join(wanted)}")
    if wanted:
        carry(arguments.packages, wanted, arguments.to / "packages")
        print(f"packages ({', '.join(wanted)}): {size(arguments.to / 'packages') / 1e6:.1f} MB")
    for name in OWN:
        shutil.copyfile(HERE / name, arguments.to / name)
    total = size(arguments.to)
    print(f"{arguments.to}: {total / (1 << 20):.1f} MiB")
    if total > MOST:
        sys.exit("more than 40 MiB")


if __name__ == "__main__":
    main()
