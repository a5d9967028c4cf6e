"""The benchmark of drafts runs on tiny models, which write the same with each of them."""

from pathlib import Path

import pytest
import torch

from benchmarks import speculative, speculative_models
from tests.small_models import PAIRS, model_of


def test_a_quick_race(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [model_of(name).save(tmp_path / name) for name in ("gpt2", "nano")]
    text = tmp_path / "text"
    text.write_text("\n".join(PAIRS.source), encoding="utf-8")
    speculative.speculative(target=folders[0], draft=folders[1], text=text, texts=2, new_tokens=9)
    printed = capsys.readouterr().out
    assert printed.count("| 2 of 2 |") >= 5
    assert "at most" in printed


def test_layers_are_stacked_and_rows_chosen() -> None:
    small = {"n_layers": 2, "d_model": 16, "n_heads": 2, "d_ff": 32}
    first = speculative.Transformer(speculative_models.shaped(small, 11))
    more = speculative.Transformer(speculative_models.shaped({**small, "n_layers": 5}, 11))
    more.load_state_dict(speculative_models.stacked(first.state_dict(), 5))
    for i in range(5):
        assert torch.equal(
            more.get_parameter(f"decoder.blocks.{i}.ffn.up.weight"),
            first.get_parameter(f"decoder.blocks.{i % 2}.ffn.up.weight"),
        )
    rows = speculative_models.narrowed(first, torch.tensor([3, 7]))
    assert torch.equal(rows["decoder.embed.tokens.weight"], first.state_dict()["decoder.embed.tokens.weight"][[3, 7]])
    assert len(rows["decoder.positions.table.weight"]) == 1024
