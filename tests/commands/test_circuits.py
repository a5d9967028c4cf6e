"""`clearhead circuits`: what it prints and writes is what the library finds."""

import json
from pathlib import Path
from typing import Any

import pytest

from clearhead.analysis.circuits import curve
from clearhead.api import Model
from clearhead.api.circuits import circuits_of
from clearhead.api.features import save_features
from clearhead.capture import node_effects
from clearhead.cli import main
from clearhead.explorer.recording.tokens import read
from tests.analysis.kinds import features
from tests.explorer.traced import CONFIGS, TOKENIZER, model_of

CLEAN, CORRUPT = "one two three four five two", "one three two four five two"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_of(CONFIGS["decoder_pre_learned"]).save(tmp_path_factory.mktemp("circuits") / "model")


def found(folder: Path, tmp_path: Path, *more: str) -> dict[str, Any]:
    out = tmp_path / "circuit.json"
    main(["circuits", str(folder), "--clean", CLEAN, "--out", str(out), *more])
    return json.loads(out.read_text(encoding="utf-8"))


def test_edges_and_faithfulness(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer, minus = (TOKENIZER.tokens([i])[0] for i in (5, 7))
    line = ["--corrupt", CORRUPT, "--answer", answer, "--minus", minus, "--edges", "--method", "ig", "--steps", "2"]
    document = found(folder, tmp_path, *line, "--top", "0.25")
    printed = capsys.readouterr().out.splitlines()
    model: Model = model_of(CONFIGS["decoder_pre_learned"])
    inputs = [read(model, text).inputs for text in (CLEAN, CORRUPT)]
    circuits, _ = circuits_of(model, *inputs, answer=5, minus=7)
    edges = circuits.edges(steps=2)
    best = edges.top(round(0.25 * int(edges.exists.sum())))
    assert [edge["reader"] for edge in document["edges"]] == [edge.reader for edge in best]
    assert document["edges"][0]["score"] == pytest.approx(best[0].score, rel=1e-4)
    assert [document["clean"], document["corrupt"]] == pytest.approx(circuits.ends, rel=1e-4)
    assert printed[1].split() == [f"{best[0].score:.4f}", best[0].writer, best[0].reader]
    point = next(curve(circuits, edges, (0.25,)))
    assert next(one for one in document["faithfulness"] if one["share"] == 0.25)["metric"] == pytest.approx(
        point.metric
    )
    assert printed[-1].startswith(f"{round(0.5 * int(edges.exists.sum())):7,}")


def test_nodes_with_a_baseline(folder: Path, tmp_path: Path) -> None:
    for method in ("patching", "refined"):
        document = found(folder, tmp_path, "--corrupt", "mean", "--method", method)
        assert "decoder.blocks.1.attn.heads[h=3]" in document["nodes"]
        assert "edges" not in document
        n_exact = sum(node["exact"] for node in document["nodes"].values())
        assert n_exact == (round(len(document["nodes"]) / 3) if method == "refined" else 0)


def test_features_are_parts(folder: Path, tmp_path: Path) -> None:
    network, at = model_of(CONFIGS["decoder_pre_learned"]).network, "decoder.blocks.0.resid_post"
    own = features(network, at, "sae")
    path = save_features(own, tmp_path / "features")
    document = found(folder, tmp_path, "--corrupt", CORRUPT, "--features", str(path), "--edges")
    nodes = {node for node in document["nodes"] if node.startswith(own.address)}
    assert f"{own.address}.error" in nodes
    ends = {edge[side] for edge in document["edges"] for side in ("writer", "reader")}
    assert nodes & ends
    assert next(point for point in document["faithfulness"] if point["share"] == 0.5)["n_edges"] > 0


def test_pairs_of_texts(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs, out = tmp_path / "pairs.tsv", tmp_path / "nodes.json"
    texts = [(CLEAN, CORRUPT), ("four two one", "four two three")]
    pairs.write_text("\n".join("\t".join(pair) for pair in texts), "utf-8")
    main(["circuits", str(folder), "--pairs", str(pairs), "--out", str(out)])
    document = json.loads(out.read_text("utf-8"))
    best, *_ = node_effects(model_of(CONFIGS["decoder_pre_learned"]), texts)
    assert document["pairs"] == 2
    assert document["nodes"][0]["site"] == best.site
    assert document["nodes"][0]["mean"] == pytest.approx(best.mean, rel=1e-4)
    assert document["nodes"][0]["interval"] == pytest.approx(best.interval, rel=1e-4)
    assert capsys.readouterr().out.splitlines()[1].split()[-1] == best.site
    pairs.write_text("one\ttwo\nthree\n", "utf-8")
    for more, message in (
        (["--pairs", str(pairs)], f"{pairs}:2: expected a clean and a corrupt text with a tab"),
        (["--pairs", str(pairs), "--edges"], "--edges: expected no such flag with --pairs"),
        (["--pairs", str(pairs), "--features", "f"], "--features: expected no such flag with --pairs, got f"),
        (["--clean", "one"], "expected --clean TEXT and --corrupt TEXT, or --pairs FILE"),
    ):
        with pytest.raises(SystemExit):
            main(["circuits", str(folder), *more])
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--corrupt", "one two"], "corrupt: expected"),
        (["--corrupt", CORRUPT, "--answer", "one two"], "--answer: expected one token, got"),
        (["--corrupt", CORRUPT, "--top", "0"], "--top: expected a share"),
        (["--corrupt", CORRUPT, "--exact", "2"], "--exact: expected a share"),
        (["--corrupt", CORRUPT, "--position", "99"], "position 99: expected"),
    ],
)
def test_what_it_refuses(
    folder: Path, tmp_path: Path, more: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        found(folder, tmp_path, *more)
    assert message in capsys.readouterr().err
