"""One self-contained page on which cross-attention shows word alignment and reordering."""

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import numpy.typing as npt

from clearhead.brief import brief

_QUANTUM = 10_000  # a weight travels as a whole number of ten-thousandths, in two bytes
_LAYER = re.compile(r"(?<=\.blocks\.)\d+(?=\.)")
_SLOT = re.compile(r"\{\{(csp|title|data)\}\}")


@dataclass(frozen=True, eq=False)
class Translated:
    """One phrase, its translation, and the cross-attention of every step that produced a token.

    `cross` is (layers, heads, t, s): row t belongs to the step that produced target token t, and an all-zero
    row means that no step did. `probabilities[t]` is the model's own, over its whole vocabulary. `alignment`
    lists the (target index, source index) pairs known to be right, for content tokens only. `unseen` lists
    source words that training never met. Tokens are shown as given, special tokens included.
    """

    __repr__ = brief

    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    source_text: str
    output_text: str
    reference: str | None
    kind: str | None
    cross: npt.NDArray[np.float32]
    probabilities: tuple[float, ...] | None
    alignment: tuple[tuple[int, int], ...] | None
    unseen: tuple[str, ...] = ()


@dataclass(frozen=True)
class PageFacts:
    """What the page says about the model as a whole.

    `figures` are (name, value) pairs, shown as a strip. `address` names the weights of `default_layer`, as in
    `decoder.blocks.1.cross.weights`; the other layers' addresses follow from it.
    """

    title: str
    subtitle: str
    figures: tuple[tuple[str, str], ...]
    address: str
    default_layer: int


def alignment_page(phrases: Sequence[Translated], facts: PageFacts) -> str:
    """One HTML file that asks the network for nothing: words above, translation below, attention between.

    Weights are rounded to four decimals and take 2.7 characters each. Every string of the data reaches the
    page as text only: its policy allows no script and no style but the two it carries, by their hashes.
    Raises ValueError where shapes, indices or weights do not fit together.
    """
    if not phrases:
        raise ValueError("phrases is empty; a page needs at least one translated phrase")
    n_layers, n_heads = _layers_and_heads(phrases, facts)
    for number, phrase in enumerate(phrases):
        _check(phrase, f"phrases[{number}]", (n_layers, n_heads))
    data: dict[str, object] = {
        "title": facts.title,
        "subtitle": facts.subtitle,
        "figures": facts.figures,
        "addresses": [_LAYER.sub(str(layer), facts.address, count=1) for layer in range(n_layers)],
        "layer": facts.default_layer,
        "heads": n_heads,
        "quantum": _QUANTUM,
        "phrases": [_packed(phrase) for phrase in phrases],
    }
    template = files("clearhead.explorer").joinpath("alignment.html").read_text(encoding="utf-8")
    slots = {"csp": _policy(template), "title": _printable(facts.title), "data": _json_in_html(data)}
    # One pass, so that a phrase that happens to contain a slot's name is never filled in.
    return _SLOT.sub(lambda slot: slots[slot.group(1)], template)


def _layers_and_heads(phrases: Sequence[Translated], facts: PageFacts) -> tuple[int, int]:
    shape = np.shape(phrases[0].cross)
    if len(shape) != 4 or 0 in shape:
        raise ValueError(f"phrases[0].cross has shape {shape}; expected (layers, heads, t, s), none of them 0")
    if not 0 <= facts.default_layer < shape[0]:
        raise ValueError(f"default_layer={facts.default_layer} is not one of the {shape[0]} layers of cross")
    named = _LAYER.search(facts.address)
    if named is None or int(named.group()) != facts.default_layer:
        raise ValueError(f"address={facts.address!r} does not name default_layer: .blocks.{facts.default_layer}.")
    return shape[0], shape[1]


def _check(phrase: Translated, name: str, layers_and_heads: tuple[int, int]) -> None:
    n_targets, n_sources = len(phrase.target_tokens), len(phrase.source_tokens)
    expected = (*layers_and_heads, n_targets, n_sources)
    if np.shape(phrase.cross) != expected:
        raise ValueError(f"{name}.cross has shape {np.shape(phrase.cross)}; expected {expected} (layers, heads, t, s)")
    weights = np.asarray(phrase.cross)
    # The negation also catches NaN, which compares false with everything.
    if not ((weights >= 0) & (weights <= 1 + 1e-3)).all():
        raise ValueError(f"{name}.cross holds a number that is not in [0, 1]; give weights, after the softmax")
    if phrase.probabilities is not None and len(phrase.probabilities) != n_targets:
        raise ValueError(f"{name}.probabilities has {len(phrase.probabilities)} numbers for {n_targets} target tokens")
    for target, source in phrase.alignment or ():
        if not (0 <= target < n_targets and 0 <= source < n_sources):
            raise ValueError(f"{name}.alignment has ({target}, {source}) outside {n_targets} x {n_sources} tokens")


def _packed(phrase: Translated) -> dict[str, object]:
    whole = np.rint(np.asarray(phrase.cross, dtype=np.float64).clip(0, 1) * _QUANTUM).astype("<u2")
    probabilities = phrase.probabilities
    return {
        "source": phrase.source_text,
        "output": phrase.output_text,
        "reference": phrase.reference,
        "kind": phrase.kind,
        "s": phrase.source_tokens,
        "t": phrase.target_tokens,
        "p": None if probabilities is None else [_number(value) for value in probabilities],
        "aligned": None if phrase.alignment is None else [list(pair) for pair in phrase.alignment],
        "unseen": phrase.unseen,
        "w": base64.b64encode(whole.tobytes()).decode("ascii"),
    }


def _number(value: float) -> float | None:
    return round(float(value), 6) if math.isfinite(value) else None


def _json_in_html(data: dict[str, object]) -> str:
    """JSON that can neither close its `<script>` nor open a comment; ASCII, so lone surrogates survive."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _printable(text: str) -> str:
    return html.escape(text.encode("utf-8", "replace").decode("utf-8"))


def _policy(template: str) -> str:
    """Nothing is allowed but the one style and the one script of the template, each by its hash."""

    def source(tag: str) -> str:
        parts: list[str] = re.findall(rf"<{tag}>(.*?)</{tag}>", template, re.DOTALL)
        digests = (hashlib.sha256(part.encode()).digest() for part in parts)
        return " ".join(f"'sha256-{base64.b64encode(digest).decode('ascii')}'" for digest in digests)

    fixed = "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'"
    return f"{fixed}; style-src {source('style')}; script-src {source('script')}"
