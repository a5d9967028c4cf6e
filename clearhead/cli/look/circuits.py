"""`clearhead circuits`: the parts and connections that make one number of a model's answer."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from clearhead.cli.look.prompts import ONE_PAIR, SHOWN, Pairs, print_effects
from clearhead.cli.options import Device, Flag, Named, Repeated, given, tell
from clearhead.errors import UserError
from clearhead.progress import counted

if TYPE_CHECKING:
    from clearhead.analysis.circuits import Circuits, Edges, Nodes, Point
    from clearhead.analysis.circuits.circuits import Baseline
    from clearhead.api import Model
    from clearhead.api.circuits import Explained
    from clearhead.model import Tokens

SIZES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


def circuits(
    model: Named,
    /,
    *,
    pairs: Pairs = ONE_PAIR,
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

    The texts have equally many tokens; a corrupt text `zero` or `mean` replaces values by 0 or their mean. With
    --pairs a node's score is the mean of its refined scores, with a 95% bootstrap interval over the pairs.

    Args:
        edges: Score the edges too.
        method: patching takes gradients at the clean text; ig their mean on the way from the corrupt one, which suits
            whole circuits; refined runs parts again, which comes closest to patching one node or edge for real.
        steps: Texts between the two for ig.
        exact: Share of the nodes that refined patches for real, those whose estimates are least certain.
        top: Share of the edges that --out keeps.
        features: Folders of `clearhead features train`, or of SAELens. What is written at
            their sites is split into features and the error that they leave, each a part of its own.
        out: JSON file to write.
    """
    from clearhead.analysis.circuits import refined_edges, refined_nodes
    from clearhead.analysis.metrics import LEAST
    from clearhead.api import load
    from clearhead.api.circuits import answer_id, circuits_of
    from clearhead.api.features import load_features

    if not 0 <= exact <= 1:
        raise UserError(f"--exact: expected a share from 0 to 1, got {exact}; try 0.33")
    opened = load(model, device=device)
    if pairs.pairs is not None:
        if edges or features:
            raise UserError(f"--{'edges' if edges else 'features'}: expected no such option with --pairs; leave it out")
        found = pairs.measure(opened, "nodes", exact=exact, name=model)
        print_effects(found, json=False, top=SHOWN)
        if out is not None:
            document = {"pairs": len(pairs.read()), "nodes": [asdict(one) for one in found]}
            out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        return
    if not 0 < top <= 1:
        raise UserError(f"--top: expected a share above 0 and at most 1, got {top}; try 0.05")
    inputs = _inputs(opened, pairs)
    ids = {
        name: answer_id(opened, text, name=name) for name, text in given(answer=pairs.answer, minus=pairs.minus).items()
    }
    known = [load_features(folder, opened.network) for folder in features]
    graph, explained = circuits_of(opened, *inputs, position=pairs.position, features=known, **ids)
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


def _inputs(model: "Model", pairs: Pairs) -> "tuple[Sequence[Tokens], Baseline]":
    """What the network reads of both texts; for `zero` and `mean` the name itself."""
    from clearhead.capture.prompts import read_prompt

    (prompt,) = pairs.read()
    baseline = prompt.corrupt[0] if prompt.corrupt[0] in ("zero", "mean") else None
    clean, corrupt = read_prompt(model, replace(prompt, corrupt=prompt.clean) if baseline else prompt).sides
    return clean, baseline or corrupt


def _edges(graph: "Circuits", scored: "Edges", top: float) -> dict[str, Any]:
    """Prints the edges and how much of the metric they carry alone; returns the `top` share of them for the file."""
    from clearhead.analysis.circuits import curve

    sizes = sorted({*SIZES, top})
    points = list(counted(curve(graph, scored, sizes), "faithfulness", len(sizes)))
    _print_edges(scored, points)
    kept = scored.top(round(top * int(scored.exists.sum())))
    return {"edges": scored.json(kept), "faithfulness": [asdict(point) for point in points]}


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
