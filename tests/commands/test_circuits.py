"""`clearhead circuits`: what it prints and writes is what the library finds."""

import json
from pathlib import Path
from typing import Any

import pytest

from clearhead.analysis.circuits import curve
from clearhead.api.circuits import circuits_of
from clearhead.api.features import save_features
from clearhead.capture import Prompt, over_prompts
from clearhead.explorer.recording.tokens import read
from tests.analysis.kinds import features
from tests.explorer.traced import CONFIGS, TOKENIZER, model_of
from tests.shell import Folders, Said, Shell

NAME = "decoder_pre_learned"
CLEAN, CORRUPT = "one two three four five two", "one three two four five two"


def found(shell: Shell, folders: Folders, *more: object) -> tuple[Said, dict[str, Any]]:
    said = shell.done("circuits", folders[NAME], "--out", "found.json", *more)
    return said, json.loads(Path("found.json").read_text(encoding="utf-8"))


def test_edges_and_faithfulness(shell: Shell, folders: Folders):
    answer, minus = (TOKENIZER.tokens([i])[0] for i in (5, 7))
    line = ("--clean", CLEAN, "--corrupt", CORRUPT, "--answer", answer, "--minus", minus, "--edges", "--method", "ig")
    said, document = found(shell, folders, *line, "--steps", 2, "--top", 0.25)
    model = model_of(CONFIGS[NAME])
    circuits, _ = circuits_of(model, *(read(model, text).inputs for text in (CLEAN, CORRUPT)), answer=5, minus=7)
    edges = circuits.edges(steps=2)
    best = edges.top(round(0.25 * int(edges.exists.sum())))
    assert [edge["reader"] for edge in document["edges"]] == [edge.reader for edge in best]
    assert document["edges"][0]["score"] == pytest.approx(best[0].score, rel=1e-4)
    assert [document["clean"], document["corrupt"]] == pytest.approx(circuits.ends, rel=1e-4)
    assert said.lines[1].split() == [f"{best[0].score:.4f}", best[0].writer, best[0].reader]
    point, metrics = next(curve(circuits, edges, (0.25,))), {one["share"]: one for one in document["faithfulness"]}
    assert metrics[0.25]["metric"] == pytest.approx(point.metric)
    assert said.lines[-1].startswith(f"{round(0.5 * int(edges.exists.sum())):7,}")


@pytest.mark.parametrize("method", ["patching", "refined"])
def test_nodes_with_a_baseline(shell: Shell, folders: Folders, method: str):
    _, document = found(shell, folders, "--clean", CLEAN, "--corrupt", "mean", "--method", method)
    assert "decoder.blocks.1.attn.heads[h=3]" in document["nodes"]
    assert "edges" not in document
    n_exact = sum(node["exact"] for node in document["nodes"].values())
    assert n_exact == (round(len(document["nodes"]) / 3) if method == "refined" else 0)


def test_features_are_parts(shell: Shell, folders: Folders, tmp_path):
    own = features(model_of(CONFIGS[NAME]).network, "decoder.blocks.0.resid_post", "sae")
    path = save_features(own, tmp_path / "features")
    _, document = found(shell, folders, "--clean", CLEAN, "--corrupt", CORRUPT, "--features", path, "--edges")
    nodes = {node for node in document["nodes"] if node.startswith(own.address)}
    assert f"{own.address}.error" in nodes
    assert nodes & {edge[side] for edge in document["edges"] for side in ("writer", "reader")}
    assert next(point for point in document["faithfulness"] if point["share"] == 0.5)["n_edges"] > 0


def test_pairs_of_texts(shell: Shell, folders: Folders):
    texts = [(CLEAN, CORRUPT), ("four two one", "four two three")]
    Path("pairs.tsv").write_text("\n".join("\t".join(pair) for pair in [("clean", "corrupt"), *texts]), "utf-8")
    said, document = found(shell, folders, "--pairs", "pairs.tsv")
    prompts = [Prompt((clean,), (corrupt,)) for clean, corrupt in texts]
    own = {one.site: one for one in over_prompts(model_of(CONFIGS[NAME]), prompts, "nodes")}
    best = max(document["nodes"], key=lambda node: abs(node["mean"]))
    assert document["pairs"] == 2
    assert best["site"] == said.lines[1].split()[-1]
    for node in document["nodes"]:
        assert node["mean"] == pytest.approx(own[node["site"]].mean, rel=1e-4)
        assert node["interval"] == pytest.approx(own[node["site"]].interval, rel=1e-4)
