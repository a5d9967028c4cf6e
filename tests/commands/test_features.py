"""`clearhead features` and `steer`, from a folder to a report, a picture in words and a steered text."""

import json
from pathlib import Path

import pytest

from clearhead.analysis.features import Features
from clearhead.api import load
from clearhead.api.features import attach, load_features
from clearhead.cli.look.sparse import _windows, split
from clearhead.explorer.session import Session
from tests.shell import Shell
from tests.small_models import TEXTS, model_of


@pytest.fixture
def folder() -> Path:
    return model_of("nano", n_layers=2, positions={"kind": "rotary"}).save(Path("nano"))


def test_train_and_show(shell: Shell, folder: Path):
    Path("text.txt").write_text("\n".join(TEXTS * 80))
    line = "--data text.txt --at decoder.blocks.1.ffn --kind transcoder --width 4x --active 8 --skip --minutes 0.03"
    printed = shell.done("features", "train", folder, *line.split(), "--out", "features")
    assert "loss recovered" in printed.out
    assert "64 features read decoder.blocks.1.ffn_norm.out and write to decoder.blocks.1.ffn.out" in printed.err
    about = json.loads(Path("features/features.json").read_text())
    assert about["report"]["recovered"] > 0.3
    assert about["trained"]["k"] == 8
    features = load_features(Path("features"), model_of("nano", n_layers=2).network)
    assert (features.n, features.k) == (64, 8)
    assert features.w_skip is not None
    session = Session(load(folder), name="nano", text="one")
    attach(session.model.network, load_features("features", session.model.network))
    (attached,) = session.model.network.attached
    assert isinstance(attached, Features)
    assert attached.source == "'features', model.network"
    lines = shell.done("features", "show", folder, "features", "one two three", "--top", 2).lines
    assert [line.split("\t")[0] for line in lines][:3] == ["'one'", "'two'", "'three'"]
    assert lines[0].split("\t")[1].count("(") == 2, "each feature with its words"


def test_windows_of_running_text():
    model = model_of("nano")
    found = _windows(model, " ".join(TEXTS * 40))
    ids = model.tokenizer.encode(" ".join(TEXTS * 40))
    (first,), labels = found[0]
    n_before = len(model.reader.special_tokens().before)
    assert first.ids[0, n_before:].tolist() == ids[: first.grid[1] - n_before]
    assert labels is not None
    own = labels[: first.grid[1]].tolist()
    assert own == [*first.ids[0, 1:].tolist(), own[-1]], "what follows each token"
    learnt, held = split(found)
    assert len(learnt) + len(held) == len(found)


def test_steer(shell: Shell, folder: Path):
    for name, texts in (("a", TEXTS[:6]), ("b", TEXTS[6:12])):
        Path(name).write_text("\n".join(texts))
    line = "--positive a --negative b --at decoder.blocks.0.resid_post --out d.safetensors"
    assert "a direction of length" in shell.done("steer", "make", folder, *line.split()).out
    plain, moved, still = (
        shell.done("generate", folder, "one", "--temperature", 0, *more).out
        for more in ((), ("--edit", "d.safetensors", "--strength", 30), ("--edit", "d.safetensors", "--strength", 0))
    )
    assert plain == still != moved
