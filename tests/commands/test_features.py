"""`clearhead features` and `steer`, from a folder to a report, a picture in words and a steered text."""

import json
from pathlib import Path

import pytest

from clearhead.analysis.features import Features
from clearhead.api import load
from clearhead.api.features import attach, features_named, load_features
from clearhead.cli import main
from clearhead.cli.look.sparse import _windows
from clearhead.explorer.session import Session
from tests.small_models import TEXTS, model_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_of("nano", n_layers=2, positions={"kind": "rotary"}).save(tmp_path_factory.mktemp("model") / "nano")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "text.txt"
    path.write_text("\n".join(TEXTS * 80))
    return path


def test_train_and_show(folder: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "features"
    words = ["--data", str(data), "--at", "decoder.blocks.1.ffn", "--kind", "transcoder", "--width", "4x"]
    main(["features", "train", str(folder), *words, "--active", "8", "--skip", "--minutes", "0.03", "--out", str(out)])
    printed = capsys.readouterr()
    assert "loss recovered" in printed.out
    assert "64 features read decoder.blocks.1.ffn_norm.out and write to decoder.blocks.1.ffn.out" in printed.err
    about = json.loads((out / "features.json").read_text())
    assert about["report"]["recovered"] > 0.3
    assert about["trained"]["k"] == 8
    features = load_features(out, model_of("nano", n_layers=2).network)
    assert (features.n, features.k) == (64, 8)
    assert features.w_skip is not None
    session = Session(load(folder), name="nano", text="one")
    attach(session.model.network, features_named(str(out), session.model.network))
    (attached,) = session.model.network.attached
    assert isinstance(attached, Features)
    assert attached.source == f"{str(out)!r}, model.network"
    main(["features", "show", str(folder), str(out), "one two three", "--top", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[0] for line in lines][:3] == ["'one'", "'two'", "'three'"]
    assert lines[0].split("\t")[1].count("(") == 2, "each feature with its words"


def test_windows_of_running_text(folder: Path) -> None:
    model = model_of("nano")
    found = _windows(model, " ".join(TEXTS * 40))
    ids = model.tokenizer.encode(" ".join(TEXTS * 40))
    (first, *_), *_ = found.inputs
    n_before = len(model.reader.special_tokens().before)
    assert first.ids[0, n_before:].tolist() == ids[: first.grid[1] - n_before]
    assert found.labels is not None
    own = found.labels[0][: first.grid[1]].tolist()
    assert own == [*first.ids[0, 1:].tolist(), own[-1]], "what follows each token"
    learnt, held = found.split()
    assert len(learnt.inputs) + len(held.inputs) == len(found.inputs)


def test_steer(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, texts in (("a", TEXTS[:6]), ("b", TEXTS[6:12])):
        (tmp_path / name).write_text("\n".join(texts))
    out = tmp_path / "d.safetensors"
    sets = ["--positive", str(tmp_path / "a"), "--negative", str(tmp_path / "b")]
    main(["steer", "make", str(folder), *sets, "--at", "decoder.blocks.0.resid_post", "--out", str(out)])
    assert "a direction of length" in capsys.readouterr().out
    texts: list[str] = []
    for more in ([], ["--edit", str(out), "--strength", "30"], ["--edit", str(out), "--strength", "0"]):
        main(["generate", str(folder), "one", "--temperature", "0", *more])
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[2] != texts[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--at", "decoder.blocks.0.resid_post", "--width", "wide"], "--width: expected a number of features"),
        (["--at", "decoder.blocks.0.resid_mid"], "no such address in this trace"),
        (["--at", "decoder.blocks.0.resid_post", "--active", "500"], "k: expected 1 to 256"),
        (["--at", "decoder.blocks.0.attn", "--kind", "transcoder"], "expected the address of an FFN"),
    ],
)
def test_mistakes(
    folder: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["features", "train", str(folder), "--data", str(data), "--out", str(tmp_path / "f"), *words])
    assert end.value.code == 2
    assert message in capsys.readouterr().err
