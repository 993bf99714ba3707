"""Draws what a command printed as a terminal in SVG: `terminal_picture.py COMMAND < printed.txt > picture.svg`.

The text is taken as it is, line by line; only colours are added: headings, bars, the command itself. The size of a
letter is fixed by `textLength`, so the columns stay columns in any monospace font.
"""

import re
import sys
from html import escape

LETTER, LINE, MARGIN, BAR = 7.8, 18, 18, 34
BACKGROUND, FRAME, TEXT, DIM, HEADING, ACCENT = "#11151c", "#2a3140", "#d7dce5", "#8b95a7", "#7fd1b9", "#f2b56b"


def colour(line):
    if line.startswith("$ "):
        return ACCENT
    if line.startswith(("=", "  Step", "Step")):
        return DIM
    if line and not line.startswith(" ") and not re.match(r"^[\w ]+: ", line):
        return HEADING
    return TEXT


def drawn(line, row):
    x, y = MARGIN, BAR + MARGIN + row * LINE
    parts = []
    # Runs of blocks get the accent; every part is placed by its column.
    for found in re.finditer(r"█+|[^█]+", line):
        text = found.group().rstrip()
        if not text:
            continue
        lead = len(text) - len(text.lstrip())
        text = text.lstrip()
        fill = ACCENT if text[0] == "█" else colour(line)
        at, width = x + (found.start() + lead) * LETTER, len(text) * LETTER
        parts.append(
            f'<text x="{at:.1f}" y="{y}" fill="{fill}" textLength="{width:.1f}" '
            f'lengthAdjust="spacingAndGlyphs" xml:space="preserve">{escape(text)}</text>'
        )
    return "\n".join(parts)


def main():
    command = sys.argv[1]
    lines = [f"$ {command}"] + [line.rstrip() for line in sys.stdin.read().rstrip().split("\n")]
    width = 2 * MARGIN + LETTER * max(len(line) for line in lines)
    height = BAR + 2 * MARGIN + LINE * (len(lines) - 1)
    body = "\n".join(part for row, line in enumerate(lines) if (part := drawn(line, row)))
    dots = "".join(f'<circle cx="{20 + 18 * dot}" cy="17" r="5" fill="{FRAME}"/>' for dot in range(3))
    print(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" aria-label="{escape(command)} in a terminal">\n'
        f'<rect width="100%" height="100%" rx="10" fill="{BACKGROUND}" stroke="{FRAME}"/>\n{dots}\n'
        f'<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" '
        f'font-size="13">\n{body}\n</g>\n</svg>'
    )


main()
