"""Answers which parts and connections make one number of a pass's answer, in questions that each take a moment."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Annotated

import torch
from pydantic import Field, JsonValue
from torch import Tensor
from typing_extensions import TypedDict

from clearhead.analysis.circuits import Circuits, Edge, Edges, Point, curve, patched_edges, with_a_place
from clearhead.analysis.features import Features
from clearhead.api.circuits import Explained, circuits_of
from clearhead.errors import UserError
from clearhead.explorer.answering.answers import Words
from clearhead.explorer.answering.opened import Opened
from clearhead.explorer.answering.passes import Pass
from clearhead.explorer.answering.questions import AddressText, Natural, OfRun, Reply, RunRequest, SmallCount, Whole
from clearhead.explorer.lru_cache import LRUCache
from clearhead.explorer.recording.tokens import read

FEW = 12
"""Terms of an edge that are listed."""


class CircuitsQuestion(OfRun):
    """Asks for the score of every node: about how much the number falls if it sees the corrupt run."""

    corrupt: RunRequest
    answer: Natural | None = None
    minus: Natural | None = None
    position: Whole | None = None
    features: bool = True
    """Whether the model's features are parts by themselves."""


class ScoredEdgesQuestion(CircuitsQuestion):
    """Asks about scored edges: `steps` of integrated gradients, 0: at the run itself."""

    steps: Annotated[int, Field(ge=0, le=50)] = 0


class EdgesQuestion(ScoredEdgesQuestion):
    """Asks for the edges with the largest scores."""

    most: Annotated[int, Field(ge=1, le=5000)] = 400


class FaithfulnessQuestion(ScoredEdgesQuestion):
    """Asks for the number with all but a share of the edges corrupt."""

    share: Annotated[float, Field(ge=0, le=1)]


class EdgeQuestion(ScoredEdgesQuestion):
    """Asks how an edge's score comes about, and for what patching that edge measures."""

    writer: AddressText
    reader: AddressText
    terms: SmallCount = FEW


class CircuitsReply(TypedDict):
    """logit[answer] - logit[minus] at a position; without logits, how far the vector lies along its shift."""

    clean: float
    corrupt: float
    answer: int | None
    minus: int | None
    position: int | None
    nodes: dict[str, list[float]]
    """By the address of what a part writes: about what the number loses if it is corrupt, by position."""
    words: Words


class EdgesReply(TypedDict):
    """The edges with the largest scores, largest first, and how many there are."""

    edges: list[Edge]
    total: int


class EdgeTerm(TypedDict):
    """One product of an edge's score."""

    t: int
    d: int
    change: float
    gradient: float
    product: float


class EdgeReply(TypedDict):
    """How the score of an edge comes about, and the effect that patching it measures."""

    score: float
    exact: float
    positions: list[float]
    terms: list[EdgeTerm]
    n_terms: int


@dataclass
class Studied:
    """The circuits between two runs, and their scored edges by the number of steps."""

    circuits: Circuits
    explained: Explained
    edges: dict[int, Edges] = field(default_factory=dict[int, Edges])

    def scored(self, steps: int) -> Edges:
        """The edges, scored once."""
        if steps not in self.edges:
            self.edges[steps] = self.circuits.edges(steps=steps)
        return self.edges[steps]


class Studies(LRUCache[Studied]):
    """The circuits between the pairs of runs that were asked about last."""

    def __init__(self) -> None:
        super().__init__(2)


def circuits(opened: Opened, question: CircuitsQuestion) -> Reply[CircuitsReply]:
    """Each node's score by position, the number on both runs, and what the number is."""
    studied = _studied(opened, question)
    clean, corrupt = studied.circuits.ends
    nodes = studied.circuits.nodes().positions
    ids = [i for i in (studied.explained.answer, studied.explained.minus) if i is not None]
    words = _clean(opened, question).words(torch.tensor(ids, dtype=torch.long)) if ids else {}
    shares = {at: share.tolist() for at, share in nodes.items()}
    return Reply({"clean": clean, "corrupt": corrupt, "nodes": shares, "words": words, **asdict(studied.explained)})


def edges(opened: Opened, question: EdgesQuestion) -> Reply[EdgesReply]:
    """The edges with the largest scores, largest first, and how many there are."""
    found = _studied(opened, question).scored(question.steps)
    return Reply({"edges": found.json(found.top(question.most)), "total": int(found.exists.sum())})


def faithfulness(opened: Opened, question: FaithfulnessQuestion) -> Reply[Point]:
    """One point of the faithfulness curve."""
    studied = _studied(opened, question)
    return Reply(asdict(next(curve(studied.circuits, studied.scored(question.steps), (question.share,)))))


def edge(opened: Opened, question: EdgeQuestion) -> Reply[EdgeReply]:
    """The score as a sum over positions and components, its largest terms, and the effect that patching measures."""
    studied = _studied(opened, question)
    change, gradient = studied.circuits.terms(question.writer, question.reader, steps=question.steps)
    pair = question.writer, question.reader
    return Reply(_made_of(change[0], gradient[0], patched_edges(studied.circuits, [pair])[pair], question.terms))


@torch.no_grad()
def every_edge(opened: Opened, question: EdgesQuestion, *, terms: int) -> Iterator[tuple[Edge, dict[str, JsonValue]]]:
    """What `edge` answers about each of the edges with the largest scores, with one pass for all of them."""
    studied = _studied(opened, question)
    found, strongest = studied.circuits, studied.scored(question.steps).top(question.most)
    wanted = {(edge.writer, edge.reader): edge for edge in strongest}
    exact, gradients = patched_edges(found, wanted), found.gradients(steps=question.steps).readers
    names = [str(writer) for writer in found.writers]
    for where, change in found.changes():
        for group, gradient in zip(found.parts.groups, gradients, strict=True):
            if where is not group:
                continue
            first = found.place(group, len(change))[0].start
            for (i, one), (reader, own) in product(enumerate(change), zip(group.readers, gradient, strict=True)):
                if (pair := (names[first + i], str(reader))) in wanted:
                    yield wanted[pair], _made_of(one[0], own[0], exact[pair], terms)


def _made_of(change: Tensor, gradient: Tensor, exact: float, terms: int) -> dict[str, JsonValue]:
    """An edge's score as a sum of products, t d each, and the effect that patching measures."""
    products = change * gradient
    return {
        "score": float(products.sum()),
        "exact": exact,
        "positions": products.sum(-1).tolist(),
        "terms": _largest(change, gradient, products, terms),
        "n_terms": products.numel(),
    }


def _largest(change: Tensor, gradient: Tensor, products: Tensor, n: int) -> list[JsonValue]:
    """The largest of the products, each with its factors."""
    places = products.flatten().abs().topk(min(n, products.numel())).indices.tolist()
    found: list[JsonValue] = []
    for place in places:
        t, d = divmod(place, products.shape[-1])
        values = {"change": change[t, d], "gradient": gradient[t, d], "product": products[t, d]}
        found.append({"t": t, "d": d, **{name: float(value) for name, value in values.items()}})
    return found


def _clean(opened: Opened, question: CircuitsQuestion) -> Pass:
    """The clean pass. A page's edits are no part of a circuit."""
    return opened.passes.get(question.run.model_copy(update={"edits": []}))


def _studied(opened: Opened, question: CircuitsQuestion) -> Studied:
    base = {"run": question.run.key, "corrupt": question.corrupt.key}
    key = str({**base, "of": (question.answer, question.minus, question.position, question.features)})
    return opened.kept(Studies, Studies).get(key, lambda: _study(opened, question))


def _study(opened: Opened, question: CircuitsQuestion) -> Studied:
    clean = _clean(opened, question)
    model, inputs = clean.model, clean.reading.inputs
    writes = len(inputs) == 2 and model.config.predicts_tokens
    text, image = opened.passes.given(model, question.corrupt)
    corrupt = read(model, text, (clean.target or "") if writes else question.corrupt.target, image=image).inputs
    if writes:  # Both decoders read the same.
        corrupt = [corrupt[0], inputs[1]]
    asked: dict[str, int | None] = {"answer": question.answer, "minus": question.minus, "position": question.position}
    attached = [one for one in model.network.attached if isinstance(one, Features)] if question.features else []
    features = with_a_place(model.network, attached)
    found, explained = circuits_of(model, inputs, corrupt, features=features, **asked)
    if explained.answer is not None and explained.answer == explained.minus:
        raise UserError("minus: expected another answer than the first, got the same; choose another")
    return Studied(found, explained)
