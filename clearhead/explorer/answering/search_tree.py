"""Generation as a tree: every token written, also in dropped beams; for a single path also likely tokens not taken."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import torch
from pydantic import Field

from clearhead.explorer.answering.answers import GenerateReply
from clearhead.explorer.answering.edits import resolve
from clearhead.explorer.answering.opened import Opened
from clearhead.explorer.answering.passes import EditedGeneration, text_of
from clearhead.explorer.answering.questions import Asked, Natural, OfRun, Reply
from clearhead.explorer.recording.tokens import texts_of
from clearhead.generation import Hypothesis, Step
from clearhead.generation.sampling import NEVER
from clearhead.generation.settings import NARROWING, changed
from clearhead.progress import pieces
from clearhead.recipe.generation import GenerationConfig
from clearhead.text.detokenizer import Detokenizer

MOST_NODES = 4096
LIKELIEST = 10
"""Tokens that the reply lists for each step."""
ALTERNATIVES = 3
"""Tokens not taken that become nodes, at each step of a single path."""


@dataclass
class Node:
    """A token that follows the tokens of its parents."""

    parent: int
    id: int
    log_prob: float
    score: float
    """Log-probability of all tokens up to here / length^length_penalty."""
    step: int
    """Tokens written before it."""
    total: float = 0.0
    kept: bool = False
    """Whether a later node or a result continues from here."""
    final: bool = False
    """Whether it ends the text, which the limit only cuts."""


@dataclass
class Tree:
    """Node 0 is the start, before the first token."""

    penalty: float
    nodes: list[Node] = field(default_factory=lambda: [Node(-1, -1, 0.0, 0.0, -1, kept=True)])

    def add(self, parent: int, token: int, log_prob: float) -> int:
        """A new node; its number."""
        above = self.nodes[parent]
        total, step = above.total + log_prob, above.step + 1
        self.nodes.append(Node(parent, token, log_prob, total / (step + 1) ** self.penalty, step, total))
        return len(self.nodes) - 1

    def grow(self, ends: list[int], step: Step) -> list[int]:
        """Adds the nodes of a step below those of the last one; -1 marks a beam without an allowed token."""
        new: list[int] = []
        rows = zip(step.tokens[0].tolist(), step.parents[0].tolist(), step.log_probs[0].tolist(), strict=True)
        for token, beam, log_prob in rows:
            parent = ends[beam]
            if parent < 0 or log_prob == NEVER:
                new.append(-1)
                continue
            self.nodes[parent].kept = True
            new.append(self.add(parent, token, log_prob))
        return new

    def path(self, found: Hypothesis) -> list[int]:
        """The nodes of a hypothesis. Adds its last token if no step has added it."""
        tokens = [*found.tokens, *([found.end_id] if found.end_id is not None else [])]
        path = [0]
        for token in tokens:
            at = next((i for i, node in enumerate(self.nodes) if node.parent == path[-1] and node.id == token), None)
            if at is None:
                at = self.add(path[-1], token, found.log_prob - self.nodes[path[-1]].total)
            path.append(at)
        for i in path:
            self.nodes[i].kept = True
        self.nodes[path[-1]].final = found.end_id is not None
        return path[1:]


class GenerateSettings(Asked):
    """The settings of generation."""

    max_new_tokens: Annotated[int, Field(ge=1, le=256)]
    beams: Annotated[int, Field(ge=1, le=16)] = 1
    """`beams` times `max_new_tokens` bounds the tree: at most 4,096 nodes."""
    temperature: Annotated[float, Field(ge=0, le=100)] = 0.0
    top_k: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: Natural = 0
    length_penalty: Annotated[float, Field(ge=-50, le=50)] | None = None


class GenerateQuestion(OfRun):
    """Asks for the model's continuation of the run's text, or for the target that it writes."""

    settings: GenerateSettings


def generate(opened: Opened, question: GenerateQuestion) -> Reply[GenerateReply]:
    """The tree of all tokens written, and the likeliest tokens of each step of the best path."""
    run, passes = question.run, opened.passes
    model = passes.model_of(run)
    writer = passes.writer(model, run, resolve(run.edits, passes.addresses(run).axes) if run.edits else [])
    config = configured(model.settings(), question.settings)
    tree = Tree(config.length_penalty)
    ends = [0, *[-1] * (config.width - 1)]  # All beams begin as one.
    for step in pieces(writer.steps(config)):
        ends = tree.grow(ends, step)
    paths = [tree.path(found) for found in writer.best]
    best = paths[0] if paths else []
    written = [tree.nodes[i].id for i in best]
    tops = _likeliest(writer, written)
    if config.width == 1:
        _branch(tree, best, tops)
    ids = sorted({node.id for node in tree.nodes[1:]} | {i for top in tops for i, _ in top})
    texts = texts_of(model, ids)
    return Reply(
        {
            "text": _text(writer, list(writer.best[0].tokens) if writer.best else []),
            "nodes": [_stated(node, texts) for node in tree.nodes],
            "best": best,
            "steps": [{"top": top} for top in tops],
            "words": texts,
            "notes": list(writer.notes),
        }
    )


def configured(own: GenerationConfig, asked: GenerateSettings) -> GenerationConfig:
    """The model's special tokens with the settings asked for. Raises UserError if they contradict each other."""
    fields = NARROWING | asked.model_dump(exclude_none=True) | (NARROWING if asked.temperature == 0 else {})
    fields |= {"n_best": asked.beams, "min_new_tokens": min(own.min_new_tokens, asked.max_new_tokens)}
    return changed(own, fields)


def _likeliest(writer: EditedGeneration, written: list[int]) -> list[list[tuple[int, float]]]:
    """For each token written, the most probable tokens at its place, over the whole vocabulary."""
    if not written:
        return []
    shares, ids = writer.logits(written).softmax(-1).topk(min(LIKELIEST, _width(writer)), -1)
    return [list(zip(*row, strict=True)) for row in zip(ids.tolist(), shares.tolist(), strict=True)]


def _width(writer: EditedGeneration) -> int:
    assert writer.model.network.decoder is not None
    return writer.model.network.decoder.lookup.num_embeddings


def _branch(tree: Tree, best: Sequence[int], tops: Sequence[list[tuple[int, float]]]) -> None:
    """Adds the likeliest tokens that were not taken, as nodes without children."""
    for node, top in zip(best, tops, strict=True):
        others = [(i, share) for i, share in top if i != tree.nodes[node].id and share > 0]
        for i, share in others[:ALTERNATIVES]:
            if len(tree.nodes) < MOST_NODES:
                tree.add(tree.nodes[node].parent, i, float(torch.tensor(share, dtype=torch.float64).log()))


def _text(writer: EditedGeneration, written: list[int]) -> str:
    model = writer.model
    if model.is_encoder_decoder or not model.has_tokenizer:
        return text_of(model, written)
    return "".join(Detokenizer(model.tokenizer, writer.inputs[-1].ids[0].tolist()).pieces(written))


def _stated(node: Node, texts: dict[str, str]) -> dict[str, object]:
    fields = {name: value for name, value in vars(node).items() if name != "total"}
    return {**fields, "text": texts.get(str(node.id), "")}
