"""Translations as one HTML file that opens at the cross-attention that tells most about them."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from clearhead.errors import UserError
from clearhead.explorer.answering.opened import Opened
from clearhead.explorer.answering.passes import LOCK, Pass
from clearhead.explorer.answering.requests import RunRequest
from clearhead.explorer.export.contents import contents, is_live
from clearhead.explorer.export.page import fragment, page
from clearhead.storage.disk import replace_file

MOST = 32
"""Texts in a file that holds the model."""
MOST_RECORDED = 8
"""Texts in a file that only holds what the model computed of them: up to some megabytes each."""


def export_translations(opened: Opened, runs: Sequence[RunRequest], path: str | Path) -> int:
    """Writes the explorer on the first of these translations. The reader may choose the others by their text.

    Returns how many translations the file holds: the first ones, each source text once. Raises UserError for a model
    without cross-attention, if there is no text, and if the file cannot be written.
    """
    if not opened.model.is_encoder_decoder:
        raise UserError("page: expected an encoder-decoder, whose cross-attention it shows, got a single stack")
    if not runs:
        raise UserError("page: expected at least one text to show, got none; give one")
    by_text: dict[str, RunRequest] = {}
    for run in runs:
        by_text.setdefault(run.text, run)
    first, *others = list(by_text.values())[: MOST if is_live(opened) else MOST_RECORDED]
    with LOCK:
        place = telling_place(opened.passes.get(first))
    inside = contents(opened, [first], others)
    replace_file(Path(path), page(opened.name, inside, fragment(RunRequest(text=first.text), place)))
    return 1 + len(others)


def telling_place(found: Pass) -> dict[str, str | int]:
    """The place, as a permalink names it, of the cross-attention head that tells most about a pass.

    That is the head whose queries say most about their keys. The query and the key are the pair with the largest
    weight among the words of the source, marks left out.
    """
    recording = found.recording
    weights = torch.stack([value for at, value in recording.tensors.items() if at.endswith(".cross.weights")])
    told = information(weights)
    layer, head = divmod(int(told.argmax()), told.shape[1])
    words = torch.tensor([token.span is not None for token in recording.manifest.tokens["encoder"]])
    shares = weights[layer, head].masked_fill(~words, 0.0)
    query, key = divmod(int(shares.argmax()), shares.shape[1])
    return {"stack": "decoder", "part": "cross", "layer": layer, "head": head, "query": query, "key": key}


def information(weights: Tensor) -> Tensor:
    """... t s -> ...: the mutual information of queries and keys in nats, every query as likely as the others.

    It is 0 for a head whose queries all attend alike, whether to everything or to one mark.
    """
    mean = weights.mean(-2)
    return torch.xlogy(weights, weights).sum(-1).mean(-1) - torch.xlogy(mean, mean).sum(-1)
