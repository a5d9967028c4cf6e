"""Figures of the explorer in a page: one file for each model, opened at the place that the sentence is about."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any

import torch
from pydantic import ConfigDict, TypeAdapter

import clearhead
from clearhead.config import Config
from clearhead.explorer.answering.opened import Opened
from clearhead.explorer.answering.questions import RunRequest
from clearhead.explorer.export.contents import contents
from clearhead.explorer.export.page import fragment, parts_of
from clearhead.trace import Address, Edit, mean, scale, zero
from clearhead_lab.course import beside

ATTENTION = re.compile(r"(?P<stack>encoder|decoder)\.blocks\.(?P<layer>\d+)\.(?P<part>attn|cross)\.(?P<value>\w+)")
STEP = {
    "q": "qkv", "k": "qkv", "v": "qkv", "scores": "scaled", "masked": "masked", "weights": "softmax", "z": "weighted",
}  # fmt: skip
VIEWS = (
    (r".*\.embed\.positions", "position"), (r".*\.embed\..*", "embedding"), (r".*norm\..*", "norm"),
    (r".*\.(attn|cross)\.(heads|out)", "output"), (r".*\.ffn\..*", "ffn"), (r"head\..*", "logits"),
    (r".*\.resid_.*", "residual"),
)  # fmt: skip
"""The view of an address outside of attention (ui/src/state/places.ts)."""


class Figure(Config):
    """What a block ```explorer states. The number at the address must be `value`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    text: str = ""
    target: str | None = None
    at: str
    """The address of one number, with an index on every axis but the batch."""
    value: str
    view: str | None = None
    """The place of the explorer, if it is not the one of the address."""
    form: str | None = None
    """How the place is drawn at first, if not all at once: `steps`."""
    position: int | None = None
    """The place whose answer is shown, if it is not the least certain one."""
    other: str | None = None
    """The text of run B, which the figure then opens on. `value` is the number of run B."""
    edits: tuple[Mapping[str, Any], ...] = ()
    """Edits of run B, which the figure then opens on. `value` is the number of run B."""
    title: str
    move: str
    """What the reader moves, and what to look for: under the figure."""

    @property
    def run(self) -> RunRequest:
        """What the page reads first."""
        image = None if self.text else "example:0"
        return RunRequest(text=self.text, target=self.target, image=image)


def figure_of(body: str) -> Figure:
    """The figure of a block. Raises ValueError, which names the field."""
    return TypeAdapter(Figure).validate_python(tomllib.loads(body))


@lru_cache(maxsize=8)
def opened(name: str, folder: Path) -> Opened:
    """The model of this name, as a page has it: on its picture, if it reads one."""
    image = folder / f"{name}.png"
    return Opened(clearhead.load(folder / name), name=name, image=image if image.is_file() else None)


def number(figure: Figure, models: Path) -> float:
    """The number at the figure's address. Raises UserError for an address that is not there."""
    model = opened(figure.model, models).model
    edit = {one["at"]: _edit(one) for one in figure.edits}
    text, target = figure.other or figure.text, figure.target
    if model.is_encoder_decoder and target is None:
        (target,) = model.translate([text])
    seen, _ = model.trace(text or models / f"{figure.model}.png", target, edit=edit)
    value = seen[figure.at].squeeze(0)
    if value.numel() != 1:
        raise ValueError(f"at: expected the address of one number, got one of {tuple(value.shape)}")
    return float(value)


def _edit(one: Mapping[str, Any]) -> Edit:
    made: dict[str, Edit] = {"zero": zero, "mean": mean}
    if one["do"] in made:
        return made[one["do"]]
    value = one["value"]
    return scale(value) if one["do"] == "scale" else torch.tensor(value) if isinstance(value, list) else float(value)


def link(figure: Figure) -> str:
    """The permalink of the place: `#v=1&s=...`."""
    address = Address.parse(figure.at)
    index = dict(address.index)
    place: dict[str, str | int] = {}
    rest: dict[str, object] = {}
    if attention := ATTENTION.fullmatch(address.path):
        names = attention.groupdict()
        place = {"stack": names["stack"], "layer": int(names["layer"]), "part": names["part"]}
        if names["value"] in STEP:
            place["step"] = STEP[names["value"]]
    elif block := re.match(r"(encoder|decoder)\.blocks\.(\d+)", address.path):
        place = {"stack": block[1], "layer": int(block[2])}
    elif address.path.startswith("decoder."):
        place = {"stack": "decoder"}
    place |= {name: index[axis] for axis, name in (("h", "head"), ("t", "query"), ("s", "key")) if axis in index}
    for axis in "dkf":
        if axis in index:
            rest["dim"] = index[axis]
    view = figure.view or next((view for form, view in VIEWS if re.fullmatch(form, address.path)), "attention")
    place |= {"view": view} | ({"form": figure.form} if figure.form else {})
    place |= {"side": "b"} if figure.edits or figure.other else {}
    if figure.position is not None:
        rest["position"] = figure.position
    elif address.path == "head.logits" and "t" in index:
        rest["position"] = index["t"]
    if figure.other:
        rest["other"] = {"text": figure.other, "target": None}
    if figure.edits:
        rest["edits"] = [dict(one) for one in figure.edits]
    if not figure.text:
        rest["image"] = "example:0"
    return fragment(figure.run, place, rest)


def html(figure: Figure, move: str) -> str:
    """The figure in a page. `move` is its sentence with the numbers in place."""
    source = escape(f"../figures/{figure.model}.html{link(figure)}")
    return (
        f'<figure class="explorer">\n<iframe src="{source}" title="{escape(figure.title)}"></iframe>\n'
        f'<figcaption markdown="span"><strong>{escape(figure.title)}.</strong> {move} '
        f'<a href="{source}" target="_blank">Open it on a page of its own</a></figcaption>\n</figure>\n'
    )


def in_turn(page: str) -> str:
    """The page with all frames but the first empty. theme/opening.js fills them when the reader comes near."""
    first, frame, rest = page.partition("<iframe src=")
    return first + frame + rest.replace("<iframe src=", "<iframe data-src=")


def write(name: str, figures: Sequence[Figure], models: Path, folder: Path) -> Path:
    """Writes the file of a model, which holds every text that a figure opens it on."""
    model = opened(name, models)
    runs = list({one.run.key: one.run for one in figures}.values())
    path = folder / f"{name}.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    inside = contents(model, runs[:1], runs[1:], languages=beside.LANGUAGES)
    path.write_bytes(beside.page(name, parts_of(inside), fragment(runs[0], {})))
    return path
