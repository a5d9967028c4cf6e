"""The benchmark of drafts runs on tiny models, which write the same with each of them."""

import pytest

from benchmarks import speculative, speculative_models
from clearhead.api import load
from tests.small_models import PAIRS, model_of


def test_a_quick_race(tmp_path, capsys):
    folders = [model_of(name).save(tmp_path / name) for name in ("gpt2", "nano")]
    text = tmp_path / "text"
    text.write_text("\n".join(PAIRS.source * 30), encoding="utf-8")
    speculative.speculative(target=(folders[0],), draft=folders[1], text=text, texts=2, new_tokens=9)
    printed = capsys.readouterr().out
    assert printed.count("| 2 of 2 |") >= 6
    assert "at most" in printed


def test_models_that_are_made(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(speculative_models, "TARGET", {"d_model": 24, "n_heads": 3, "d_ff": 40, "n_layers": 2})
    monkeypatch.setattr(speculative_models, "LENGTH", 16)
    monkeypatch.setattr(speculative_models, "BATCH", 32)
    start = model_of("llama-tiny", d_ff=24).save(tmp_path / "start")
    text = tmp_path / "text"
    text.write_text("\n".join(PAIRS.source * 30), encoding="utf-8")
    speculative.speculative(
        make=tmp_path / "made", start=start, words=start, train=text, text=text, draft_steps=2, steps=(0, 3),
        texts=2, new_tokens=5, temperature=(0.0,),
    )  # fmt: skip
    printed = capsys.readouterr().out
    first, last = (line for line in printed.splitlines() if line.startswith("target-"))
    assert "the same: 100.0%" in first
    assert last.startswith("target-3: loss ")
    draft, grown, trained = (load(tmp_path / "made" / name).network for name in ("draft", "target-0", "target-3"))
    table = "decoder.embed.tokens.weight"
    assert grown.state_dict()[table][:, :16].equal(draft.state_dict()[table])
    assert not trained.state_dict()[table].equal(grown.state_dict()[table])


@pytest.mark.slow
def test_a_race_in_the_server(tmp_path, capsys):
    folders = [model_of(name).save(tmp_path / name) for name in ("gpt2", "nano")]
    text = tmp_path / "text"
    text.write_text("\n".join(PAIRS.source), encoding="utf-8")
    speculative.speculative(target=(folders[0],), draft=folders[1], text=text, texts=2, new_tokens=9, serve=True)
    assert "over plain, 2 of 2 texts the same" in capsys.readouterr().out
