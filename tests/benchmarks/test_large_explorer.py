"""The benchmark of a large model asks what a page asks; no figure is judged here."""

import json

from benchmarks.large_explorer import page
from benchmarks.loading import LARGE, checkpoints, network
from clearhead.api import Model


def test_a_page_of_a_tiny_model(tmp_path, capsys):
    folder = Model(network(*checkpoints(quick=True)[LARGE])).save(tmp_path / "model")
    page(folder, 8, 3)
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert 0 <= found["a number"]["wall"] <= found["slowest number"]["wall"] < 60
    assert 0 < found["first picture"]["wall"] < 60
    assert found["memory / weights"]["opened"] <= found["memory / weights"]["numbers"]
