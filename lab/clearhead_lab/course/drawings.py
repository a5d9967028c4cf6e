"""Drawings of a page: its one idea in steps, as rows of SVG whose numbers are those of the page."""

import tomllib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from io import BytesIO
from math import inf
from typing import Any

import torch
from PIL import Image
from torch import Tensor, as_tensor

from clearhead_lab.course import values
from clearhead_lab.course.values import Values

WIDTH, GAP, LINE = 360.0, 12.0, 18.0
Row = tuple[str, float]
"""SVG and its height."""


def label(x: float, y: float, said: str, kind: str = "") -> str:
    """A text around x, on the line y."""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(said)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str, strength: float = 1) -> str:
    """A rectangle of a kind of the style, as strong as its number."""
    at = " ".join(
        f'{name}="{round(one, 1):g}"' for name, one in (("x", x), ("y", y), ("width", width), ("height", height)) if one
    )
    return f'<rect {at} class="{kind}" fill-opacity="{round(strength, 2):g}"/>'


def number(value: float) -> str:
    """A value in two decimals."""
    return f"{value:.2f}".replace("-", "−")


def sign(value: float) -> str:
    """The kind of a value's colour."""
    return "minus" if value < 0 else "plus"


def words(names: Sequence[str], *marked: int) -> Row:
    """Words side by side in boxes. An empty one leaves its column free."""
    w = WIDTH / len(names)
    kinds = ["marked" if i in marked else "word" for i in range(len(names))]
    return "".join(
        box(i * w + 2, 0, w - 4, 26, kinds[i]) + label(i * w + w / 2, 17.5, name)
        for i, name in enumerate(names)
        if name
    ), 26


def bars(heights: Tensor, most: float = 0) -> Row:
    """A bar with its number for each value."""
    w, most = WIDTH / len(heights), most or float(as_tensor(heights).abs().max())
    return "".join(
        box(i * w + w / 4, 44 - 44 * abs(one) / most, w / 2, 44 * abs(one) / most, sign(one))
        + label(i * w + w / 2, 58, number(one))
        for i, one in enumerate(map(float, heights))
    ), 62


def strips(vectors: Tensor, most: float = 0) -> Row:
    """Vectors side by side: a cell for each component, and the stronger the larger it is."""
    w, most = WIDTH / len(vectors), most or float(vectors.abs().max())
    c = (w - 8) / vectors.shape[-1]
    return "".join(
        box(i * w + 4 + j * c, 0, c, 18, sign(one), abs(one) / most)
        for i, vector in enumerate(vectors.tolist())
        for j, one in enumerate(vector)
    ), 18


def cells(matrix: Tensor, rows: Sequence[str], most: float = 0) -> Row:
    """A matrix with a name before each row. Minus infinity is a closed cell."""
    w, most = WIDTH / (matrix.shape[-1] + 1), most or float(matrix[matrix.isfinite()].abs().max())
    return "".join(
        label(w / 2, i * 24 + 16, rows[i])
        + "".join(
            box(j * w + w + 1, i * 24 + 1, w - 2, 22, "closed" if one == -inf else sign(one), min(0.6, abs(one) / most))
            + label(j * w + w * 1.5, i * 24 + 16, "" if one == -inf else number(one))
            for j, one in enumerate(row)
        )
        for i, row in enumerate(matrix.tolist())
    ), 24 * len(matrix)


def links(weights: Tensor) -> Row:
    """Lines from the columns above to those below, each as thick as its weight."""
    above, below = (WIDTH / n for n in weights.shape)
    return "".join(
        f'<path d="M{(i + 0.5) * above:.1f} -6C{(i + 0.5) * above:.1f} 20 {(j + 0.5) * below:.1f} 14 '
        f'{(j + 0.5) * below:.1f} 40" stroke-width="{8 * one:.2f}"/>'
        for i, row in enumerate(weights.tolist())
        for j, one in enumerate(row)
    ), 34


def dials(angles: Tensor) -> Row:
    """A clock for each angle in radians, whose hand begins at the top and turns to the right."""
    w = WIDTH / len(angles)
    return "".join(
        f'<g transform="translate({i * w + w / 2:.1f} 24)"><circle r="22"/>'
        f'<path d="M0 0V-20" style="transform: rotate({one:.3f}rad)"/></g>'
        for i, one in enumerate(angles.tolist())
    ), 48


def curve(line: Sequence[float]) -> Row:
    """A line over its place in the sequence."""
    low, high, n = min(line), max(line), len(line) - 1
    points = " ".join(f"{4 + 352 * x / n:.1f},{102 - 96 * (y - low) / (high - low):.1f}" for x, y in enumerate(line))
    return f'<polyline points="{points}"/>', 106


def pictures(images: Tensor) -> Row:
    """Pictures side by side, each as wide as its column."""
    w, drawn = WIDTH / len(images), ""
    for i, one in enumerate(images):
        Image.fromarray(one.numpy()).save(file := BytesIO(), "png")
        inside = f"data:image/png;base64,{b64encode(file.getvalue()).decode()}"
        drawn += f'<image x="{i * w + 4:.1f}" width="{w - 8:.1f}" href="{inside}"/>'
    return drawn, w - 8


def arrows(parts: Tensor, *names: str) -> Row:
    """Two vectors of a plane from one origin, and their sum: the diagonal of the parallelogram that they span."""
    one, other = parts.tolist()
    both = parts.sum(0).tolist()
    low, high = (f(torch.stack([parts.new_zeros(2), *parts, parts.sum(0)]), 0) for f in (torch.amin, torch.amax))
    unit = min(340 / float(high[0] - low[0]), 150 / float(high[1] - low[1]))
    x, y = (WIDTH - unit * float(low[0] + high[0])) / 2, 12 + unit * float(high[1])

    def line(*ends: Sequence[float], width: float) -> str:
        points = "L".join(f"{x + unit * a:.1f} {y - unit * b:.1f}" for a, b in ends)
        return f'<path d="M{points}" stroke-width="{width:g}"/>'

    frame = line(one, both, width=0.5) + line(other, both, width=0.5)
    ends = "".join(line((0, 0), end, width=w) for end, w in ((one, 2), (other, 2), (both, 4)))
    said = "".join(
        label(min(max(x + unit * a / 2, 30), WIDTH - 30), y - unit * b / 2 - 6, name)
        for name, (a, b) in zip(names, (one, other), strict=False)
    )
    return frame + ends + said, 24 + unit * float(high[1] - low[1])


KINDS = {kind.__name__: kind for kind in (words, bars, strips, cells, links, dials, curve, pictures, arrows)}


def draw(body: str, space: Mapping[str, Any]) -> tuple[str, Values]:
    """The figure of a block with the values that it shows. Raises ValueError for a block that cannot be read."""
    block, found, groups, told = tomllib.loads(body), Values(), "", ""
    steps: list[dict[str, Any]] = block["step"]
    y = top = end = 0.0
    for n, step in enumerate(steps):
        y = top = top if step.pop("over", False) else y
        told += f'<li><button type="button">{escape(step.pop("say"))}</button></li>'
        until = f' data-until="{n + 1}"' if n + 1 < len(steps) and "over" in steps[n + 1] else ""
        groups += f'<g data-from="{n}"{until}>'
        for key, code in step.items():
            kind, _, name = key.partition(" ")
            if kind not in KINDS:
                raise ValueError(f"{key}: expected {', '.join(KINDS)}")
            value = eval(code, {"torch": torch, **space})
            found[f"{n} {key}"] = values.summary(value)
            row, height = KINDS[kind](*value if isinstance(value, tuple) else (value,))
            y += LINE * bool(name)
            groups += f'<text x="0" y="{y - 4:.0f}" class="name">{escape(name)}</text>' * bool(name)
            groups += f'<g transform="translate(0 {y:.0f})">{row}</g>'
            y += height + GAP
        groups += "</g>"
        end = max(end, y)
    title = escape(block["title"])
    picture = f'<svg viewBox="0 0 {WIDTH:.0f} {end - GAP + 2:.0f}" role="img" aria-label="{title}">{groups}</svg>'
    told = f"{title}</strong> <small>Click a line, or press →, for the next step.</small><ol>{told}</ol>"
    told = f"<figcaption><strong>{told}</figcaption>"
    return f'\n<figure class="drawing">{picture}{told}</figure>\n', found
