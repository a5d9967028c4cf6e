"""The sweep runs; no figure is judged here."""

from benchmarks.sweep import sweep


def test_a_quick_sweep(capsys):
    sweep(tokens=4, quick=True)
    printed = capsys.readouterr().out
    assert [line.split(":")[0] for line in printed.splitlines()[1:5]] == ["resid", "attn", "ffn", "heads"]
    assert "resid: 4 rows" in printed
