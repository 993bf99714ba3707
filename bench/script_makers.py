"""Makers of the data of the scripts in docs/benchmarks/optimize-draw.tsv: each writes what one script reads, where it reads it.

Everything comes from random numbers with a fixed seed, so two machines make the same. Nothing is a copy of a public data set.
"""
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy

DIGITS = [f"{left}{right}" for left in "bdfgklmnprst" for right in "aeiou"]


def generator():
    return numpy.random.default_rng(0)


def clouds(numbers, width, height, coarse=16):
    """A picture of coloured clouds with noise, as the JPEG files of script_data.py show."""
    from PIL import Image

    small = numbers.integers(0, 256, (max(2, height // coarse), max(2, width // coarse), 3), dtype=numpy.uint8)
    picture = numpy.asarray(Image.fromarray(small).resize((width, height), Image.BICUBIC)).astype(numpy.int16)
    picture = picture + numbers.integers(-12, 13, picture.shape)
    return Image.fromarray(picture.clip(0, 255).astype(numpy.uint8))


def drawings(folder, count, width, height, kind="jpg"):
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    numbers = generator()
    files = [folder / f"{number}.{kind}" for number in range(count)]
    for file in files:
        clouds(numbers, width, height).save(file)
    return files


def link(target, place):
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.is_symlink():
        os.symlink(target, place)


def classes(folder, kinds, count, width=500, height=375):
    """A folder of pictures for each class: 64 pictures are drawn, the other files are links to them."""
    files = drawings(folder.parent / f"{folder.name}-drawings", 64, width, height)
    for kind in range(kinds):
        for number in range(count):
            link(files[(kind * 7 + number) % len(files)], folder / f"class{kind:03d}" / f"{number:05d}.jpg")


def imagenet(folder, kinds=10, count=800):
    for part, each in (("train", count), ("val", 30)):
        classes(folder / part, kinds, each)


def idx(file, values):
    head = bytes([0, 0, 8, values.ndim]) + numpy.array(values.shape, dtype=">i4").tobytes()
    file.write_bytes(head + values.astype(numpy.uint8).tobytes())


def digits(folder, name="MNIST"):
    """The four files of MNIST's form, which torchvision takes by their names alone: ten blurred shapes, moved and with noise."""
    raw = folder / name / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    numbers = generator()
    shapes = (numbers.random((10, 7, 7)) > 0.6).astype(numpy.uint8).repeat(4, 1).repeat(4, 2) * 200
    for part, count in (("train", 60000), ("t10k", 10000)):
        labels = numbers.integers(0, 10, count)
        moves = numbers.integers(-3, 4, (count, 2))
        pictures = numbers.integers(0, 40, (count, 28, 28), dtype=numpy.uint8)
        for number, (label, (down, right)) in enumerate(zip(labels, moves)):
            pictures[number] += numpy.roll(shapes[label], (down, right), (0, 1))
        idx(raw / f"{part}-images-idx3-ubyte", pictures)
        idx(raw / f"{part}-labels-idx1-ubyte", labels)


def digit_files(folder, count=1000):
    from PIL import Image

    numbers = generator()
    shapes = (numbers.random((10, 7, 7)) > 0.6).astype(numpy.uint8).repeat(4, 1).repeat(4, 2) * 200
    for digit in range(10):
        place = folder / str(digit)
        place.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            moved = numpy.roll(shapes[digit], numbers.integers(-3, 4, 2), (0, 1))
            Image.fromarray(moved + numbers.integers(0, 40, (28, 28), dtype=numpy.uint8)).save(place / f"{number}.png")


def words(numbers, count, different=8000):
    """Words of two to four syllables, the frequent ones as frequent as in a language."""
    lexicon = sorted({"".join(numbers.choice(DIGITS, numbers.integers(1, 5))) for _ in range(2 * different)})[:different]
    numbers.shuffle(lexicon)
    ranks = numpy.minimum(numbers.zipf(1.3, count) - 1, len(lexicon) - 1)
    return [lexicon[rank] for rank in ranks]


def text(size):
    numbers = generator()
    parts = words(numbers, size // 5)
    stops = numbers.random(len(parts)) < 0.08
    return " ".join(part + ("." if stop else "") for part, stop in zip(parts, stops))[:size]


def bytes_of_text(file):
    """95 MB of text, compressed, in the place of enwik8: 4 MB of it, again and again."""
    piece = text(4_000_000).encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(file, "wb", compresslevel=1) as out:
        for _ in range(100_000_000 // len(piece) + 1):
            out.write(piece)


def tokens(file, count, vocabulary, kind=numpy.uint16):
    file.parent.mkdir(parents=True, exist_ok=True)
    numpy.minimum(generator().zipf(1.2, count), vocabulary - 1).astype(kind).tofile(file)


def windows(shape, dtype, scale=1.0, bound=None, rows=768):
    """A tensor whose first dimension are windows, `rows` numbers apart, over one row of random numbers: the file stays small."""
    import torch

    inner = int(numpy.prod(shape[1:]))
    torch.manual_seed(0)
    count = (shape[0] - 1) * rows + inner
    row = torch.randint(0, bound, (count,)).to(dtype) if bound else (scale * torch.randn(count)).to(dtype)
    strides = [rows] + [int(numpy.prod(shape[place + 1 :])) for place in range(1, len(shape))]
    return row.as_strided(shape, strides)


def airbench(folder):
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", 50000), ("test", 10000)):
        labels = torch.from_numpy(generator().integers(0, 10, count))
        images = windows((count, 32, 32, 3), torch.uint8, bound=256)
        torch.save({"images": images, "labels": labels, "classes": [str(kind) for kind in range(10)]}, folder / f"{name}.pt")


def half_pictures(file):
    import torch

    parts = {}
    for name, count in (("train", 50000), ("eval", 10000)):
        labels = torch.from_numpy(generator().integers(0, 10, count))
        targets = torch.nn.functional.one_hot(labels, 10).half()
        # The script moves its data with the device that it was saved from.
        where = "cuda" if torch.cuda.is_available() else "cpu"
        parts[name] = {"images": windows((count, 3, 32, 32), torch.half).to(where), "targets": targets.to(where)}
    torch.save(parts, file)


def token_tensors(file):
    import torch

    where = "cuda" if torch.cuda.is_available() else "cpu"
    draw = lambda count: torch.from_numpy(numpy.minimum(generator().zipf(1.2, count), 50256).astype(numpy.int32)).to(where)
    torch.save({"train": draw(20_000_000), "eval": draw(250_000)}, file)


def citations(folder):
    """Papers, words and citations in the form of Cora."""
    numbers = generator()
    folder.mkdir(parents=True, exist_ok=True)
    kinds = ["Case_Based", "Genetic_Algorithms", "Neural_Networks", "Probabilistic_Methods", "Reinforcement_Learning", "Rule_Learning"]
    kinds.append("Theory")
    papers = numbers.permutation(1_000_000)[:2708]
    has = (numbers.random((2708, 1433)) < 0.0127).astype(int)
    labels = numbers.integers(0, 7, 2708)
    rows = ["\t".join([str(paper), *map(str, row), kinds[label]]) for paper, row, label in zip(papers, has, labels)]
    (folder / "cora.content").write_text("\n".join(rows) + "\n")
    ends = numbers.integers(0, 2708, (5429, 2))
    (folder / "cora.cites").write_text("".join(f"{papers[one]}\t{papers[other]}\n" for one, other in ends))


def streets(folder):
    """Pictures and labels in the form of Cityscapes: eight of each are drawn, the other files are links to them."""
    from PIL import Image

    files = drawings(folder / "drawings", 8, 2048, 1024, "png")
    numbers = generator()
    for number in range(8):
        small = numbers.integers(7, 34, (8, 16), dtype=numpy.uint8)
        Image.fromarray(small.repeat(128, 0).repeat(128, 1)).save(folder / "drawings" / f"labels{number}.png")
    for part, count in (("train", 400), ("val", 20)):
        for number in range(count):
            name = f"town_{number:06d}_000000"
            link(files[number % 8], folder / "leftImg8bit" / part / "town" / f"{name}_leftImg8bit.png")
            labels = (folder / "drawings" / f"labels{number % 8}.png").absolute()
            link(labels, folder / "gtFine" / part / "town" / f"{name}_gtFine_labelIds.png")


def boxes(folder, names, count=400):
    """Pictures and boxes in the form of PASCAL VOC."""
    numbers = generator()
    files = drawings(folder / "drawings", 32, 500, 375)
    for part, each in (("VOC2007", count), ("VOC2007-test", 20)):
        (folder / part / "Annotations").mkdir(parents=True, exist_ok=True)
        for number in range(each):
            link(files[number % 32], folder / part / "JPEGImages" / f"{number:06d}.jpg")
            objects = ""
            for _ in range(numbers.integers(1, 5)):
                left, top = int(numbers.integers(1, 300)), int(numbers.integers(1, 220))
                right, bottom = left + int(numbers.integers(40, 190)), top + int(numbers.integers(40, 150))
                box = f"<xmin>{left}</xmin><ymin>{top}</ymin><xmax>{right}</xmax><ymax>{bottom}</ymax>"
                name = f"<name>{names[numbers.integers(len(names))]}</name>"
                objects += f"<object>{name}<difficult>0</difficult><bndbox>{box}</bndbox></object>"
            size = "<size><width>500</width><height>375</height><depth>3</depth></size>"
            (folder / part / "Annotations" / f"{number:06d}.xml").write_text(f"<annotation>{size}{objects}</annotation>")


def weights(name, file):
    """Weights under the name that torchvision has downloaded them by, where it looks first: small random numbers, many of them shared."""
    import torch
    import torchvision

    folder = Path(torch.hub.get_dir()) / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    made = {}
    for key, value in getattr(torchvision.models, name)(weights=None).state_dict().items():
        if value.dim() < 2:
            made[key] = value
            continue
        # Windows over 65,536 numbers, one place apart, of the size that the layer would start with.
        inner = value[0].numel()
        row = value.flatten()[: inner + len(value)].clone()
        strides = [1] + [int(numpy.prod(value.shape[place + 1 :])) for place in range(1, value.dim())]
        made[key] = row.as_strided(value.shape, strides)
    torch.save(made, folder / file)


def visits(file, people=6040, things=3416, count=400_000):
    numbers = generator()
    file.parent.mkdir(parents=True, exist_ok=True)
    who = numpy.sort(numpy.concatenate([numpy.repeat(numpy.arange(1, people + 1), 5), numbers.integers(1, people + 1, count)]))
    what = numpy.minimum(numbers.zipf(1.1, len(who)) % things + 1, things)
    what[:things] = numpy.arange(1, things + 1)
    file.write_text("".join(f"{one} {other}\n" for one, other in zip(who, what)))


def series(file, columns, rows=20_000):
    """Comma-separated numbers: daily waves with noise, a column for each place."""
    numbers = generator()
    file.parent.mkdir(parents=True, exist_ok=True)
    hours = numpy.arange(rows)[:, None] / 144 * 2 * numpy.pi + numbers.random(columns) * 2
    values = 20 * numpy.clip(numpy.sin(hours), 0, None) + numbers.random((rows, columns))
    numpy.savetxt(file, values, fmt="%.2f", delimiter=",")


def headlines(folder):
    """Headlines with a class, and a BERT of 12 layers by its configuration, whose weights the script then draws itself."""
    import torch

    numbers = generator()
    signs = numpy.array([chr(code) for code in range(0x4E00, 0x4E00 + 6000)])
    data = folder / "THUCNews" / "data"
    data.mkdir(parents=True, exist_ok=True)
    (folder / "THUCNews" / "saved_dict").mkdir(exist_ok=True)
    (data / "class.txt").write_text("\n".join(f"class{kind}" for kind in range(10)) + "\n")
    for part, count in (("train", 60000), ("dev", 500), ("test", 500)):
        lines = ("".join(signs[numbers.integers(0, len(signs), numbers.integers(12, 30))]) + f"\t{numbers.integers(0, 10)}\n" for _ in range(count))
        (data / f"{part}.txt").write_text("".join(lines), encoding="utf8")
    bert = folder / "bert_pretrain"
    bert.mkdir(exist_ok=True)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    fill = [f"[unused{number}]" for number in range(21128 - len(special) - len(signs))]
    (bert / "vocab.txt").write_text("\n".join([*special, *signs, *fill]) + "\n", encoding="utf8")
    about = {"vocab_size": 21128, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
    about |= {"hidden_act": "gelu", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "max_position_embeddings": 512}
    (bert / "bert_config.json").write_text(json.dumps(about | {"type_vocab_size": 2, "initializer_range": 0.02}))
    torch.save({"bert.pooler.dense.bias": torch.zeros(768)}, bert / "pytorch_model.bin")


def pairs_of_sentences(root):
    """A corpus of two sentences a line, and its vocabulary by the program that README names for it."""
    numbers = generator()
    parts = words(numbers, 1_200_000)
    lines = (" ".join(parts[at : at + 10]) + "\t" + " ".join(parts[at + 10 : at + 20]) + "\n" for at in range(0, len(parts) - 20, 20))
    (root / "data").mkdir(exist_ok=True)
    (root / "output").mkdir(exist_ok=True)
    (root / "data" / "corpus.small").write_text("".join(lines))
    # The program `bert` as an installation of the package writes it.
    (root / "bert").write_text("from bert_pytorch.__main__ import train\n\ntrain()\n")
    build = "import sys; sys.argv = ['bert-vocab', '-c', 'data/corpus.small', '-o', 'data/vocab.small']; "
    subprocess.run([sys.executable, "-c", build + "from bert_pytorch.dataset.vocab import build; build()"], cwd=root, check=True)


def facades(folder):
    files = drawings(folder / "drawings", 32, 512, 256)
    for part, count in (("train", 400), ("val", 100), ("test", 106)):
        for number in range(count):
            link(files[number % 32], folder / part / f"{number + 1}.jpg")


VOC = "aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike person pottedplant sheep sofa train".split()
VOC.append("tvmonitor")


def stories(folder):
    for part in range(3):
        tokens(folder / f"data{part:02d}.bin", 8_000_000, 32000)


# The data of each script, by its name in the list; `root` is the folder of its repository.
MAKERS = {
    "imagenet-dummy": lambda root: None,
    "dcgan": lambda root: None,
    "vae": lambda root: digits(root / "data"),
    "airbench94": lambda root: airbench(root / "cifar10"),
    "airbench96": lambda root: airbench(root / "cifar10"),
    "hlb-cifar10": lambda root: half_pictures(root / "data.pt"),
    "hlb-gpt": lambda root: token_tensors(root / "data.pt"),
    "llama2c": lambda root: stories(root / "data" / "TinyStories_all_data"),
    "makemore": lambda root: None,
    "video-gpt": lambda root: None,
    "pygcn": lambda root: citations(root / "data" / "cora"),
    "pygat": lambda root: citations(root / "data" / "cora"),
    "wgan-gp": lambda root: digits(root / "data" / "mnist"),
    "pix2pix": lambda root: facades(root / "data" / "facades"),
    "simsiam": lambda root: imagenet(root / "pictures", 10, 3000),
    "supcontrast": lambda root: classes(root / "path", 10, 2000, 96, 96),
    "superminddpm": lambda root: (digits(root / "data"), (root / "contents").mkdir(exist_ok=True)),
    "odenet": lambda root: digits(root / "examples" / ".data" / "mnist"),
    "efficient-kan": lambda root: digits(root / "data"),
    "schedule-free": lambda root: digits(root / "examples" / "data"),
    "cleanrl-ppo": lambda root: None,
    "cleanrl-dqn": lambda root: None,
    "fast-scnn": lambda root: streets(root / "datasets" / "citys"),
    "palm": lambda root: bytes_of_text(root / "data" / "enwik8.gz"),
    "vq-autoencoder": lambda root: digits(Path.home() / "data" / "fashion_mnist", "FashionMNIST"),
    "bert-pytorch": pairs_of_sentences,
    "sasrec": lambda root: visits(root / "python" / "data" / "ml-1m.txt"),
    "tcn-adding": lambda root: None,
    "tcn-pixels": lambda root: digits(root / "TCN" / "mnist_pixel" / "data" / "mnist"),
    "mtgnn": lambda root: series(root / "data" / "solar_AL.txt", 137),
    "bert-chinese": headlines,
    "faster-rcnn": lambda root: (boxes(root, VOC), weights("vgg16", "vgg16-397923af.pth")),
    "ddpm-pytorch": lambda root: digit_files(root / "data" / "train" / "images"),
    "lit-autoencoder": lambda root: digits(root / "03-LitAutoEncoder" / "data"),
}
