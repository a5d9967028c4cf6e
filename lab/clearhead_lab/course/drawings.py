"""Drawings of a page: its one idea in steps, as rows of SVG whose numbers are those of the page."""

import tomllib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from io import BytesIO
from math import hypot, inf
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


def number(value: float, decimals: int = 2) -> str:
    """A value with so many decimals. A nought has no sign."""
    return f"{round(value, decimals) + 0:.{decimals}f}".replace("-", "−")


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
    """A bar with its number for each value. Whole numbers have no decimals."""
    decimals = 0 if all(float(one).is_integer() for one in heights) else 2
    w, most = WIDTH / len(heights), most or float(as_tensor(heights).abs().max())
    return "".join(
        box(i * w + w / 4, 44 - 44 * abs(one) / most, w / 2, 44 * abs(one) / most, sign(one))
        + label(i * w + w / 2, 58, number(one, decimals))
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


def cells(matrix: Tensor, rows: Sequence[str], most: float = 0, columns: Sequence[str] = ()) -> Row:
    """A matrix with a name before each row, and above each column. Minus infinity is a closed cell."""
    w, most = WIDTH / (matrix.shape[-1] + 1), most or float(matrix[matrix.isfinite()].abs().max())
    top = LINE * bool(columns)
    return "".join(label(j * w + w * 1.5, 12, name, "over") for j, name in enumerate(columns)) + "".join(
        label(w / 2, top + i * 24 + 16, rows[i])
        + "".join(
            box(
                j * w + w + 1,
                top + i * 24 + 1,
                w - 2,
                22,
                "closed" if one == -inf else sign(one),
                min(0.6, abs(one) / most),
            )
            + label(j * w + w * 1.5, top + i * 24 + 16, "" if one == -inf else number(one))
            for j, one in enumerate(row)
        )
        for i, row in enumerate(matrix.tolist())
    ), top + 24 * len(matrix)


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


def image(x: float, y: float, width: float, pixels: Tensor) -> str:
    """A picture, as wide as this."""
    Image.fromarray(pixels.numpy()).save(file := BytesIO(), "png")
    inside = f"data:image/png;base64,{b64encode(file.getvalue()).decode()}"
    return f'<image x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" href="{inside}"/>'


def pictures(images: Tensor) -> Row:
    """Pictures side by side, each as wide as its column."""
    w = WIDTH / len(images)
    return "".join(image(i * w + 4, 0, w - 8, one) for i, one in enumerate(images)), w - 8


def patches(pixels: Tensor, side: int) -> Row:
    """A picture under a grid, and beside it the same squares apart."""
    n, whole, gap = pixels.shape[0] // side, 160.0, 6.0
    w = whole / n
    grid = "".join(
        f'<path d="M{i * w:.1f} 0V{whole:.1f}M0 {i * w:.1f}H{whole:.1f}" stroke-width="1.5"/>' for i in range(n + 1)
    )
    apart = "".join(
        image(180 + j * (w + gap), i * (w + gap), w, pixels[i * side :, j * side :][:side, :side])
        for i in range(n)
        for j in range(n)
    )
    return image(0, 0, whole, pixels) + grid + apart, n * (w + gap) - gap


def arrow(start: tuple[float, float], end: tuple[float, float], width: float) -> str:
    """A line with a head at its end."""
    (x, y), (a, b) = start, end
    length, reach = hypot(a - x, b - y) or 1, 5 + 1.5 * width
    u, v = (a - x) / length, (b - y) / length
    sides = " ".join(
        f"{a - reach * u + side * reach * 0.45 * v:.1f},{b - reach * v - side * reach * 0.45 * u:.1f}"
        for side in (1, -1)
    )
    head = f'<polygon points="{a + width * u:.1f},{b + width * v:.1f} {sides}" class="plus"/>'
    return f'<path d="M{x:.1f} {y:.1f}L{a:.1f} {b:.1f}" stroke-width="{width:g}"/>{head}'


def vectors(plane: Tensor, names: Sequence[str], most: float = 0) -> Row:
    """Arrows of a plane from one origin, each with its name at its end. Without `most` they fill the picture."""
    low, high = plane.amin(0).clamp(max=0).tolist(), plane.amax(0).clamp(min=0).tolist()
    wide, tall = (max(b - a, 1e-9) for a, b in zip(low, high, strict=True))
    unit = 100 / most if most else min(240 / wide, 200 / tall)
    height = 250.0 if most else unit * tall + 50
    x0, y0 = (WIDTH - unit * (low[0] + high[0])) / 2, (height + unit * (low[1] + high[1])) / 2
    start = (WIDTH / 2, height / 2) if most else (x0, y0)
    taken, drawn = list[tuple[float, float]](), ""
    for (a, b), name in zip(plane.tolist(), names, strict=True):
        length, half = hypot(a, b), 3.4 * len(name) + 3
        end = start[0] + unit * a, start[1] - unit * b
        drawn += arrow(start, end, 2)
        x = end[0] + (half + 6) * a / length
        y = end[1] - 14 * b / length + 4
        spots = ((x, y + down) for step in range(12) for down in (15 * step, -15 * step))
        x, y = next(one for one in spots if all(abs(one[1] - v) >= 14 or abs(one[0] - u) > 46 for u, v in taken))
        taken.append((x, y))
        drawn += label(x, y, name)
    return drawn, height


KINDS = {kind.__name__: kind for kind in (words, bars, strips, cells, links, dials, curve, pictures, patches, vectors)}


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
            kind, _, name = key.rstrip().partition(" ")
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
    how = "<small>Click a line, or press →, for the next step.</small>" * (len(steps) > 1)
    told = f"{title}</strong> {how}<ol>{told}</ol>"
    told = f"<figcaption><strong>{told}</figcaption>"
    return f'\n<figure class="drawing">{picture}{told}</figure>\n', found
