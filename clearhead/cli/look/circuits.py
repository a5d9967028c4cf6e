"""`clearhead circuits`: the parts and connections that make one number of a model's answer."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from clearhead.cli.look.capture import progress
from clearhead.cli.options import Device, Flag, Named, Repeated, Text, given, tell
from clearhead.cli.use.inputs import texts_in
from clearhead.errors import UserError
from clearhead.progress import counted

if TYPE_CHECKING:
    from clearhead.analysis.circuits import Circuits, Edges, Nodes, Point
    from clearhead.analysis.circuits.circuits import Baseline
    from clearhead.api import Model
    from clearhead.api.circuits import Explained
    from clearhead.model import Tokens

SIZES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
SHOWN = 20


def circuits(
    model: Named,
    /,
    *,
    clean: Text | None = None,
    corrupt: Text | None = None,
    pairs: Path | None = None,
    target: Text | None = None,
    answer: Text | None = None,
    minus: Text | None = None,
    position: int | None = None,
    edges: Flag = False,
    method: Literal["patching", "ig", "refined"] = "patching",
    steps: int = 5,
    exact: float = 1 / 3,
    top: float = 0.05,
    features: Repeated = (),
    out: Path | None = None,
    device: Device = "cpu",
) -> None:
    """Find the heads, feed-forwards and connections that make one number of a model's answer.

    The number is logit[ANSWER] - logit[MINUS] at a position; of a sentence encoder, how far its vector lies from the
    corrupt text's toward the clean one's. A node's score is about how much the number falls if it writes what it writes
    on the corrupt text; an edge's, if one query, key, value or feed-forward alone sees that. Below the edges stands how
    much of the number the best of them carry with all others corrupt: their faithfulness.

    With --pairs, each line is a clean and a corrupt text with a tab between them; a node's score is the mean of its
    refined scores, with a 95% bootstrap interval over the pairs.

    Args:
        clean: The text that is explained.
        corrupt: A text of as many tokens with another answer; `zero` or `mean` replaces values by 0 or their mean.
        pairs: File of many such pairs, in place of --clean and --corrupt.
        target: What the decoder of an encoder-decoder has written so far (default: nothing).
        answer: Token or label of the answer (default: the likeliest on the clean text).
        minus: Token or label that it is compared with (default: the likeliest on the corrupt text).
        position: Position of the answer (default: the last).
        edges: Score the edges too.
        method: patching takes gradients at the clean text; ig their mean on the way from the corrupt one, which suits
            whole circuits; refined runs parts again, which comes closest to patching one node or edge for real.
        steps: Texts between the two for ig.
        exact: Share of the nodes that refined patches for real, those whose estimates are least certain.
        top: Share of the edges that --out keeps.
        features: Folders of `clearhead features train`, SAELens or circuit-tracer (FOLDER:LAYER). What is written at
            their sites is split into features and the error that they leave, each a part of its own.
        out: JSON file to write.
    """
    from clearhead.analysis.circuits import refined_edges, refined_nodes
    from clearhead.analysis.metrics import LEAST
    from clearhead.api import load
    from clearhead.api.circuits import answer_id, circuits_of
    from clearhead.api.features import features_named

    if not 0 <= exact <= 1:
        raise UserError(f"--exact: expected a share from 0 to 1, got {exact}; try 0.33")
    if pairs is not None:
        flags = {"--clean": clean, "--corrupt": corrupt, "--answer": answer, "--minus": minus, "--position": position}
        for flag, value in (flags | {"--edges": edges or None, "--features": " ".join(features) or None}).items():
            if value is not None:
                raise UserError(f"{flag}: expected no such flag with --pairs, got {value}; leave it out")
        print_pairs(load(model, device=device), pairs, target=target, exact=exact, out=out)
        return
    if clean is None or corrupt is None:
        raise UserError("circuits: expected --clean TEXT and --corrupt TEXT, or --pairs FILE; give them")
    if not 0 < top <= 1:
        raise UserError(f"--top: expected a share above 0 and at most 1, got {top}; try 0.05")
    opened = load(model, device=device)
    inputs = _inputs(opened, clean, corrupt, target)
    ids = {name: answer_id(opened, text, name=name) for name, text in given(answer=answer, minus=minus).items()}
    known = [features_named(folder, opened.network) for folder in features]
    graph, explained = circuits_of(opened, *inputs, position=position, features=known, **ids)
    begin, end = graph.ends
    metric = named(opened, explained)
    tell(f"{metric}: {begin:.3f} on the clean text, {end:.3f} on the corrupt one")
    if explained.answer is not None and abs(begin - end) <= LEAST:
        tell(f"These are at most {LEAST} apart: shares of so little, as faithfulness is one, mean little.")
    steps = steps if method == "ig" else 0
    nodes = refined_nodes(graph, exact=exact) if method == "refined" else graph.nodes(steps=steps)
    document: dict[str, Any] = {"metric": metric, "clean": begin, "corrupt": end, "method": method}
    document["nodes"] = nodes.json()
    if edges:
        document |= _edges(graph, refined_edges(graph) if method == "refined" else graph.edges(steps=steps), top)
    else:
        _print_nodes(nodes)
    if out is not None:
        out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        kept = f" and {len(document['edges']):,} edges" if edges else ""
        tell(f"{out}: {len(nodes.positions)} nodes{kept}")


def _inputs(model: "Model", clean: str, corrupt: str, target: str | None) -> "tuple[Sequence[Tokens], Baseline]":
    """What the network reads of both texts; for `zero` and `mean` the name itself."""
    from clearhead.config import LanguageHead
    from clearhead.explorer.recording.tokens import read

    writes = model.is_encoder_decoder and isinstance(model.config.head, LanguageHead)
    written = "" if target is None and writes else target
    baseline = corrupt if corrupt in ("zero", "mean") else None
    return read(model, clean, written).inputs, baseline or read(model, corrupt, written).inputs


def _edges(graph: "Circuits", scored: "Edges", top: float) -> dict[str, Any]:
    """Prints the edges and how much of the metric they carry alone; returns the `top` share of them for the file."""
    from clearhead.analysis.circuits import curve

    sizes = sorted({*SIZES, top})
    points = list(counted(curve(graph, scored, sizes), "faithfulness", len(sizes)))
    _print_edges(scored, points)
    kept = scored.top(round(top * int(scored.exists.sum())))
    return {"edges": scored.json(kept), "faithfulness": [asdict(point) for point in points]}


def print_pairs(model: "Model", pairs: Path, *, target: str | None, exact: float, out: Path | None) -> None:
    """Prints the nodes by their mean scores over pairs of texts, with intervals; writes them as JSON."""
    from clearhead.capture import node_effects

    target = "" if target is None and model.is_encoder_decoder else target
    read = texts_in(pairs, pairs=True, expected="a clean and a corrupt text")
    texts: list[Any] = read if target is None else [((clean, target), (corrupt, target)) for clean, corrupt in read]
    with progress():
        found = node_effects(model, texts, exact=exact)
    print(f"{'mean':>9}  {'95% interval':>20}  node")
    for one in found[:SHOWN]:
        print(f"{one.mean:9.4f}  {one.interval[0]:9.4f} to {one.interval[1]:7.4f}  {one.site}")
    if out is not None:
        document = {"pairs": len(texts), "nodes": [asdict(one) for one in found]}
        out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        tell(f"{out}: {len(found)} nodes, {len(texts)} pairs")


def named(model: "Model", explained: "Explained") -> str:
    """What a circuit explains, in words."""
    from clearhead.explorer.recording.tokens import texts_of

    if explained.answer is None:
        return "vector along its shift"
    labels = getattr(model.config.head, "labels", None)
    ids = [i for i in (explained.answer, explained.minus) if i is not None]
    words = [labels[i] for i in ids] if labels else [texts_of(model, ids)[str(i)] for i in ids]
    where = "" if explained.position is None else f" at position {explained.position}"
    return " - ".join(f"logit({word!r})" for word in words) + where


def _print_nodes(nodes: "Nodes") -> None:
    ranked = sorted(nodes.scores.items(), key=lambda item: -abs(item[1]))
    print(f"{'score':>9}  node")
    for address, score in ranked[:SHOWN]:
        print(f"{score:9.4f}  {address}{'  (exact)' if address in nodes.exact else ''}")


def _print_edges(edges: "Edges", points: "list[Point]") -> None:
    top = edges.top(SHOWN)
    width = max(len(edge.writer) for edge in top)
    print(f"{'score':>9}  {'from':<{width}}  to")
    for edge in top:
        print(f"{edge.score:9.4f}  {edge.writer:<{width}}  {edge.reader}")
    print(f"\n{'edges':>7}  {'share':>6}  {'metric':>8}  faithfulness")
    for point in points:
        share = "-" if point.faithfulness is None else f"{point.faithfulness:.1%}"
        print(f"{point.n_edges:7,}  {point.share:6.1%}  {point.metric:8.3f}  {share:>8}")
