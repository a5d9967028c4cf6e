"""The benchmark of model types runs on the same weights on both sides; no figure is judged here."""

import json
from typing import Any

import pytest
import torch

from benchmarks.model_types import QUICK, READING, TYPES, WRITING, calls, main, opened
from tests.later import later

later("transformers")


@pytest.mark.parametrize("name", ["gemma-3-270m", "MiniLM-L6"])
def test_both_sides_compute_the_same(name: str, tmp_path):
    architecture, sizes = TYPES[name]
    small = {**sizes, **{key: value for key, value in QUICK.items() if key in sizes}}
    sides = opened(architecture, small, tmp_path / name)
    read, write = (READING if name == "MiniLM-L6" else WRITING)[0], WRITING[2]
    reading = calls(read, sides, 1000)
    with torch.inference_mode():
        ours: Any = reading["clearhead"]()
        theirs: Any = reading["transformers"]()
    assert torch.allclose(ours, theirs["last_hidden_state" if name == "MiniLM-L6" else "logits"], atol=1e-4)
    if name != "MiniLM-L6":
        writing = calls(write, sides, 1000)
        written: Any = writing["clearhead"]()
        whole: Any = writing["transformers"]()
        found = written[0][0] if isinstance(written, list) else written
        assert len(whole[0]) == write.n_read + write.n_new
        assert list(found.tokens) == whole[0][write.n_read :].tolist()


def test_quick_run_ends_with_the_ratios(capsys):
    before = torch.get_num_threads()
    try:
        with pytest.raises(SystemExit, match="0"):
            main(["--quick", "--json", "--only", "with 8 experts"])
    finally:
        torch.set_num_threads(before)
    ratios = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {*ratios["stories15M with 8 experts, 2 used"]} == {task.name for task in WRITING}
