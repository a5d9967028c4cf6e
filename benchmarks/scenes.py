"""Pictures of a few shapes with their captions, drawn from a seed: `two red circles and one blue square`."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import cos, pi, sin
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

SIDE = 36
"""Pixels of a side."""
CELLS = 3
"""Cells of a row and of a column, each of which holds one shape at most."""
COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 170, 60),
    "blue": (50, 80, 220),
    "yellow": (235, 205, 50),
    "purple": (150, 60, 180),
    "white": (245, 245, 245),
}
SHAPES = ("circle", "cross", "ring", "square", "star", "triangle")
PLURALS = {name: f"{name}es" if name.endswith("s") else f"{name}s" for name in SHAPES}
COUNTS = ("one", "two", "three")
SCALE = 4
"""Pixels of the drawing for each one of the picture, which smooth its edges."""


@dataclass(frozen=True)
class Scene:
    """A picture, its caption, and where each word's shapes are."""

    picture: Image.Image
    caption: str
    places: Sequence[NDArray[np.bool_]]
    """y x for each of the words that name a shape, in order: the pixels of its shapes."""


def scenes(n: int, *, seed: int) -> Iterator[Scene]:
    """n scenes of one kind of shape or of two, each kind one to three times, in the order of their names."""
    random = np.random.default_rng(seed)
    for _ in range(n):
        names = sorted(random.choice(SHAPES, size=1 + int(random.integers(2)), replace=False).tolist())
        cells = random.permutation(CELLS**2)
        picture = Image.new("RGB", (SIDE * SCALE,) * 2, tuple(random.integers(0, 40, 3).tolist()))
        parts, places, used = list[str](), list[NDArray[np.bool_]](), 0
        for name in names:
            colour, count = random.choice([*COLOURS]), 1 + int(random.integers(len(COUNTS)))
            mask = Image.new("L", picture.size)
            for cell in cells[used : used + count].tolist():
                size = SIDE / CELLS
                radius = size * random.uniform(0.36, 0.46)
                y, x = (
                    size * (place + 0.5) + random.uniform(-1, 1) * (size / 2 - radius) for place in divmod(cell, CELLS)
                )
                for layer, fill in ((picture, COLOURS[colour]), (mask, 255)):
                    _draw(ImageDraw.Draw(layer), name, x * SCALE, y * SCALE, radius * SCALE, fill)
            used += count
            parts.append(f"{COUNTS[count - 1]} {colour} {name if count == 1 else PLURALS[name]}")
            places.append(np.asarray(mask.resize((SIDE, SIDE), Image.Resampling.BOX)) > 127)
        yield Scene(picture.resize((SIDE, SIDE), Image.Resampling.BOX), " and ".join(parts), places)


def _draw(on: ImageDraw.ImageDraw, name: str, x: float, y: float, r: float, fill: tuple[int, int, int] | int) -> None:
    """Draws a shape around x, y within the radius r."""
    if name == "circle":
        on.ellipse((x - r, y - r, x + r, y + r), fill=fill)
    elif name == "ring":
        on.ellipse((x - r, y - r, x + r, y + r), outline=fill, width=round(r * 0.45))
    elif name == "square":
        on.rectangle((x - 0.85 * r, y - 0.85 * r, x + 0.85 * r, y + 0.85 * r), fill=fill)
    elif name == "cross":
        on.rectangle((x - r, y - r / 3, x + r, y + r / 3), fill=fill)
        on.rectangle((x - r / 3, y - r, x + r / 3, y + r), fill=fill)
    else:
        n, inner = (3, 1.0) if name == "triangle" else (5, 0.4)
        turns = (
            [pi * i / n - pi / 2 for i in range(2 * n)]
            if name == "star"
            else [2 * pi * i / n - pi / 2 for i in range(n)]
        )
        radii = [r if i % 2 == 0 or name == "triangle" else inner * r for i in range(len(turns))]
        on.polygon([(x + q * cos(a), y + q * sin(a)) for q, a in zip(radii, turns, strict=True)], fill=fill)


def write_scenes(folder: Path, n: int, *, seed: int) -> Path:
    """Writes n pictures and captions.csv, with the columns image and text; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / "captions.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(("image", "text"))
        for i, scene in enumerate(scenes(n, seed=seed)):
            scene.picture.save(folder / f"{i:05}.png")
            rows.writerow((f"{i:05}.png", scene.caption))
    return table
