"""Compares outputs and gradients of a replay under a remedy with those of the script.

Each value is compared by size, |c - r| / |r|, and by its projection on the reference, <c, r> / <r, r> - 1: rounding errors
point anywhere, so that a wrong factor of 1% in one layer shows in the projection when it hides in the size. Where a
projection is not clear, it is averaged over replays with moved weights.

A gradient that is zero but for rounding, as of a bias before batch norm or of the bias of an attention's keys, is judged
against the gradients of its layer. It moves by much of its size with each rounding, or by some of it and is no larger than
the roundings of its layer.
"""
import math

# Limits of the size: rounding errors add up over layers. Roundings by the remedy's arithmetic, at least this share.
ROUNDINGS, LEAST_SIZE = 12, 2e-3
# Or so many times what moving the weights by one rounding changes, at most this share.
TIMES_MOVED, MOST_SIZE = 4, 0.5
# The part of a value that is farthest off may be so many times farther than the whole.
TIMES_PART = 4
PARTS, LEAST_PART = 32, 16
# Limits of the projection: in fp32, and with fewer bits.
SINGLE, FEWER_BITS = 1e-3, 5e-3
# A value that moves by this share is nothing but rounding.
NOTHING = 0.3
# So is one that moves by this share and is at most so many roundings of its layer's gradients, or `LEAST_SIZE` of them.
UNCLEAR, ROUNDINGS_OF_LAYER = 0.03, 4
# A value that moves by more than `UNCLEAR` is what is left of larger ones that cancel. Arithmetic that rounds all of those to one
# side (TF32 cuts bits off) moves it in the same direction each time, by at most this share of what one rounding does.
ONE_SIDED = 0.5
# A projection counts as off from this many standard errors.
ERRORS = 4
LEAST_PAIRS = 6


class Rows:
    """One row per output and gradient of a call."""

    def __init__(self, module, reference, noise, unit):
        """`noise` says how far each value moves by one rounding, `unit` its size."""
        self.projection_limit = SINGLE if unit < 1e-6 else FEWER_BITS
        self.size_limit = max(LEAST_SIZE, ROUNDINGS * unit)
        self.prefix = type(module).__name__
        # Rows by name; an output's name has a space, a parameter's has none.
        self.measured = {name: [] for name in reference.values()}
        self.noise = noise
        self.counts = {name: 0 if one is None else one.numel() for name, one in reference.values().items()}
        sizes = sizes_of(reference)
        self.nothing = {name for name, noise in self.noise.items() if noise > NOTHING}
        unclear = {name for name, noise in self.noise.items() if noise > UNCLEAR and name in sizes} - self.nothing
        scales = layer_scales(sizes, unclear, self.nothing | unclear)
        most = max(LEAST_SIZE, ROUNDINGS_OF_LAYER * unit)
        self.nothing |= {name for name, scale in scales.items() if sizes[name] <= most * scale}
        self.layers = layer_scales(sizes, self.nothing, self.nothing)

    def add(self, reference, candidate):
        missing = set(reference.values()) - set(candidate.values())
        if missing:
            raise SHARED.part("shadow").Different(f"it gives no {sorted(missing)[0]}")
        for name, found in measure(reference, candidate).items():
            self.measured[name].append(found)

    def is_nothing(self, name):
        return name in self.nothing

    def is_short(self, name):
        """A gradient of few values, over which rounding errors do not average out: its projection says no more than its
        size."""
        return self.counts[name] < LEAST_PART and " " not in name

    def limit(self, name):
        return min(max(self.size_limit, TIMES_MOVED * self.noise[name]), MOST_SIZE)

    def along_limit(self, name):
        """Errors in any direction shorten a gradient by their square."""
        noise = self.noise[name]
        return self.projection_limit + noise**2 + (ONE_SIDED * noise if noise > UNCLEAR else 0.0)

    def is_decided(self, pairs):
        """Whether no projection needs more pairs."""
        if any(self.size_excess(name) > 1 for name in self.measured):
            return True
        for name in self.measured:
            first, limit = abs(self.measured[name][0].projection), self.along_limit(name)
            if self.is_nothing(name) or self.is_short(name) or first <= limit / 2 or first > limit + TIMES_MOVED * self.noise[name]:
                continue
            mean, error = self.projection(name)
            is_clear = abs(mean) + 2 * error <= limit or abs(mean) - ERRORS * error > limit
            if pairs < LEAST_PAIRS or not is_clear:
                return False
        return True

    def projection(self, name):
        """Mean and standard error over the pairs."""
        found = [one.projection for one in self.measured[name]]
        mean = sum(found) / len(found)
        if len(found) < 2:
            return mean, 0.0
        return mean, math.sqrt(sum((one - mean) ** 2 for one in found) / (len(found) - 1) / len(found))

    def size_excess(self, name):
        """The difference by size, divided by what is allowed."""
        found = self.measured[name][0]
        if not math.isfinite(found.difference):
            return math.inf
        if self.is_nothing(name):
            allowed = 2 * self.size_limit * self.layers.get(name, 0.0) * math.sqrt(self.counts[name])
            return ratio(found.difference, allowed)
        limit = self.limit(name)
        return max(ratio(found.size, limit), ratio(found.part, TIMES_PART * limit))

    def projection_excess(self, name):
        if self.is_nothing(name) or self.is_short(name):
            return 0.0
        mean, error = self.projection(name)
        excess = ratio(abs(mean), self.along_limit(name))
        # Off, but not beyond its own scatter: too noisy to judge, so that the size alone counts.
        return excess if excess <= 1 or abs(mean) > ERRORS * error else 1.0

    def content(self):
        return [
            {
                "name": f"{self.prefix}.{name}" if name.partition(" ")[0] == name else f"{self.prefix} {name}",
                "what": name.partition(" ")[0] if name.startswith(("output ", "buffer ")) else "gradient",
                "size": self.measured[name][0].size,
                "projection": self.projection(name)[0],
                "limit": self.limit(name),
                "excess": max(self.size_excess(name), self.projection_excess(name)),
            }
            for name in self.measured
        ]


class Measured:
    def __init__(self, difference, size, projection, part):
        self.difference, self.size, self.projection, self.part = difference, size, projection, part


def measure(reference, other):
    """All values of two replays; read from the device at once."""
    import torch

    others, found, names = other.values(), [], []
    for name, one in reference.values().items():
        # A gradient that was not computed is zero.
        second = others.get(name)
        if one is None and second is None:
            continue
        if one is not None and second is not None and one.shape != second.shape:
            raise SHARED.part("shadow").Different(f"{name} has the shape {list(second.shape)} in place of {list(one.shape)}")
        first = torch.zeros_like(second) if one is None else one
        second = torch.zeros_like(first) if second is None else second
        found.append(figures(first, second.to(first.device)))
        names.append(name)
    values = torch.stack(found).tolist() if found else []
    result = {name: Measured(0.0, 0.0, 0.0, 0.0) for name in reference.values()}
    for name, (length, difference, along, part) in zip(names, values):
        is_zero = length == 0.0
        size = difference / length if not is_zero else (0.0 if difference == 0.0 else math.inf)
        result[name] = Measured(difference, size, 0.0 if is_zero else along / length**2, part)
    return result


def figures(first, second):
    """Length of the reference, distance, their product, and the relative distance of the part that is farthest off."""
    import torch

    difference = second - first
    length = torch.linalg.vector_norm(first)
    along = torch.sum(difference * first)
    parts = min(PARTS, first.shape[0], first.numel() // LEAST_PART) if first.dim() else 0
    if parts > 1:
        lengths = torch.stack([torch.linalg.vector_norm(one) for one in first.tensor_split(parts)])
        distances = torch.stack([torch.linalg.vector_norm(one) for one in difference.tensor_split(parts)])
        # Small parts are judged against half the usual length of one.
        part = torch.max(distances / torch.maximum(lengths, 0.5 * length / parts**0.5).clamp(min=1e-38))
    else:
        part = torch.linalg.vector_norm(difference) / torch.clamp(length, min=1e-38)
    return torch.stack([length, torch.linalg.vector_norm(difference), along, part]).cpu()


def sizes_of(reference):
    """The root mean square of each gradient."""
    given = {name: one for name, one in reference.gradients.items() if one is not None and one.numel()}
    return {name: float(one.norm()) / math.sqrt(one.numel()) for name, one in given.items()}


def layer_scales(sizes, names, left_out):
    """For each name the largest size of a gradient in the same module, or in the nearest one around it that has any that is
    not left out."""
    found = {}
    for name in names:
        around = name
        while around and name not in found:
            around = around.rpartition(".")[0]
            inside = [
                size for other, size in sizes.items() if other not in left_out and (not around or other.startswith(around + "."))
            ]
            if inside:
                found[name] = max(inside)
    return found


def ratio(value, limit):
    if value == 0.0:
        return 0.0
    return value / limit if limit > 0.0 else math.inf


def sentence(failed, rows):
    row, *others = sorted(failed, key=lambda row: -row["excess"])
    which = row["name"] if row["what"] in ("output", "buffer") else f"the {row['what']} {row['name']}"
    then = ", then " + " and ".join(other["name"] for other in others[:2]) if others else ""
    return (
        f"{len(failed)} of {rows} values differ, most of all {which}: by {row['size']:.1e} in size (allowed {row['limit']:.1e}), "
        f"by {row['projection']:+.1e} along the reference{then}"
    )
