"""`clearhead circuits`: the parts and connections that make one number of a model's answer."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from clearhead.analysis.circuits import Edge, Edges, Nodes, Point, curve, refined_edges, refined_nodes
from clearhead.analysis.metrics import LEAST
from clearhead.api import Model, load
from clearhead.api.circuits import Explained, answer_id, circuits_of
from clearhead.api.features import features_named
from clearhead.capture import node_effects
from clearhead.capture.texts import Text
from clearhead.cli.look.capture import progress
from clearhead.cli.options import tell
from clearhead.config import LanguageHead
from clearhead.data.files import read_lines
from clearhead.errors import UserError
from clearhead.explorer.recording.tokens import read, texts_of
from clearhead.progress import counted

Method = Literal["patching", "ig", "refined"]
SIZES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
SHOWN = 20


def circuits_command(
    name: str,
    *,
    clean: str,
    corrupt: str,
    target: str | None,
    answer: str | None,
    minus: str | None,
    position: int | None,
    edges: bool,
    method: Method,
    steps: int,
    exact: float,
    top: float,
    features: Sequence[str],
    out: Path | None,
    device: str,
) -> None:
    """Prints the nodes, or the edges and how much of the metric they carry alone; writes all of it as JSON."""
    if not 0 < top <= 1:
        raise UserError(f"--top: expected a share above 0 and at most 1, got {top}; try 0.05")
    check_share(exact)
    model = load(name, device=device)
    baseline = corrupt if corrupt in ("zero", "mean") else None
    writes = model.is_encoder_decoder and isinstance(model.config.head, LanguageHead)
    other = "" if target is None and writes else target
    inputs = read(model, clean, other).inputs
    replaced = baseline or read(model, corrupt, other).inputs
    given = {"answer": answer, "minus": minus}
    ids = {which: answer_id(model, text, name=which) for which, text in given.items() if text is not None}
    known = [features_named(folder, model.network) for folder in features]
    circuits, explained = circuits_of(model, inputs, replaced, position=position, features=known, **ids)
    begin, end = circuits.ends
    metric = named(model, explained)
    tell(f"{metric}: {begin:.3f} on the clean text, {end:.3f} on the corrupt one")
    if explained.answer is not None and abs(begin - end) <= LEAST:
        tell(f"These are at most {LEAST} apart: shares of so little, as faithfulness is one, mean little.")
    document: dict[str, Any] = {"metric": metric, "clean": begin, "corrupt": end, "method": method}
    steps = steps if method == "ig" else 0
    nodes = refined_nodes(circuits, exact=exact) if method == "refined" else circuits.nodes(steps=steps)
    document["nodes"] = nodes.json()
    kept: list[Edge] = []
    if edges:
        found = refined_edges(circuits) if method == "refined" else circuits.edges(steps=steps)
        sizes = sorted({*SIZES, top})
        points = list(counted(curve(circuits, found, sizes), "faithfulness", len(sizes)))
        kept = found.top(round(top * int(found.exists.sum())))
        document["edges"] = found.json(kept)
        document["faithfulness"] = [asdict(point) for point in points]
        _print_edges(found, points)
    else:
        _print_nodes(nodes)
    if out is not None:
        out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        tell(f"{out}: {len(nodes.positions)} nodes{f' and {len(kept):,} edges' if edges else ''}")


def pairs_command(
    name: str,
    pairs: Path,
    *,
    target: str | None,
    exact: float,
    out: Path | None,
    device: str,
    given: Mapping[str, object],
) -> None:
    """Prints the nodes by their mean scores over pairs of texts, with intervals; writes them as JSON."""
    for flag, value in given.items():
        if value is not None:
            raise UserError(f"{flag}: expected no such flag with --pairs, got {value}; leave it out")
    check_share(exact)
    model = load(name, device=device)
    target = "" if target is None and model.is_encoder_decoder else target
    texts = list(_pairs(pairs, target))
    with progress():
        found = node_effects(model, texts, exact=exact)
    print(f"{'mean':>9}  {'95% interval':>20}  node")
    for one in found[:SHOWN]:
        print(f"{one.mean:9.4f}  {one.interval[0]:9.4f} to {one.interval[1]:7.4f}  {one.site}")
    if out is not None:
        document = {"pairs": len(texts), "nodes": [asdict(one) for one in found]}
        out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        tell(f"{out}: {len(found)} nodes, {len(texts)} pairs")


def _pairs(path: Path, target: str | None) -> Iterator[tuple[Text, Text]]:
    """The pairs in a file, each text with the target if there is one."""
    for i, line in enumerate(read_lines(path), 1):
        clean, tab, corrupt = line.partition("\t")
        if not line.strip():
            continue
        if not tab:
            raise UserError(f"{path}:{i}: expected a clean and a corrupt text with a tab between them, got one text")
        yield (clean, corrupt) if target is None else ((clean, target), (corrupt, target))


def check_share(exact: float) -> None:
    """Raises UserError unless it is a share."""
    if not 0 <= exact <= 1:
        raise UserError(f"--exact: expected a share from 0 to 1, got {exact}; try 0.33")


def named(model: Model, explained: Explained) -> str:
    """What a circuit explains, in words."""
    if explained.answer is None:
        return "vector along its shift"
    labels = getattr(model.config.head, "labels", None)
    ids = [i for i in (explained.answer, explained.minus) if i is not None]
    words = [labels[i] for i in ids] if labels else [texts_of(model, ids)[str(i)] for i in ids]
    where = "" if explained.position is None else f" at position {explained.position}"
    return " - ".join(f"logit({word!r})" for word in words) + where


def _print_nodes(nodes: Nodes) -> None:
    ranked = sorted(nodes.scores.items(), key=lambda item: -abs(item[1]))
    print(f"{'score':>9}  node")
    for address, score in ranked[:SHOWN]:
        print(f"{score:9.4f}  {address}{'  (exact)' if address in nodes.exact else ''}")


def _print_edges(edges: Edges, points: list[Point]) -> None:
    top = edges.top(SHOWN)
    width = max(len(edge.writer) for edge in top)
    print(f"{'score':>9}  {'from':<{width}}  to")
    for edge in top:
        print(f"{edge.score:9.4f}  {edge.writer:<{width}}  {edge.reader}")
    print(f"\n{'edges':>7}  {'share':>6}  {'metric':>8}  faithfulness")
    for point in points:
        share = "-" if point.faithfulness is None else f"{point.faithfulness:.1%}"
        print(f"{point.n_edges:7,}  {point.share:6.1%}  {point.metric:8.3f}  {share:>8}")
