"""`clearhead compare` on every kind of model."""

from pathlib import Path
from typing import Any

import pytest

from clearhead.errors import UserError
from clearhead.session.comparing import check_same
from clearhead.tasks.evaluation import Evaluation, Example
from clearhead.tasks.scores import Score
from tests.files import put
from tests.shell import Shell
from tests.small_models import PAIRS, model_of
from tests.tasks.small import SIZES
from tests.tasks.test_classification import rows, write_table


def compared(shell: Shell, *words: str) -> dict[str, Any]:
    said = shell.done("compare", *words, "--json")
    assert "95% intervals; p from 1,000 paired bootstrap resamples" in said.err
    return said.json | {"told": said.err}


def test_two_classifiers(shell: Shell):
    """A trained one against one of a single step, on the part that both hold out, and on a file."""
    write_table(Path("table.csv"), rows() * 3)
    line = "train table.csv --precision fp32 --training.max_tokens 64 --training.schedule.warmup 1"
    line += " --training.evaluate_every 99 " + " ".join(SIZES)
    shell.done(*f"{line} --out bad --steps 1".split())
    shell.done(*f"{line} --out good --steps 25 --training.optimizer.lr 1e-2".split())
    found = compared(shell, "bad", "good")
    one = found["scores"]["accuracy"]
    assert one["difference"] == pytest.approx(one["second"] - one["first"])
    assert one["interval"][0] <= one["difference"] <= one["interval"][1]
    assert 0 < one["p"] <= 1
    assert found["examples"] == 9
    best = found["second_better"][0]
    assert best["error"] > best["other"]["error"]
    write_table(Path("other.csv"), rows()[:20])
    assert compared(shell, "bad", "good", "--data", "other.csv")["examples"] == 20
    assert "second is most clearly better:" in found["told"]


def test_two_translators_and_two_language_models(shell: Shell):
    """By sentences, and by windows of a text."""
    for name in ("demo", "nano"):
        for seed in (0, 1):
            model_of(name, seed=seed).save(Path(f"{name}-{seed}"))
    put("a", PAIRS.source[:6])
    put("b", PAIRS.target[:6])
    found = compared(shell, "demo-0", "demo-1", "--source", "a", "--target", "b")
    assert found["examples"] == 6
    assert {"bleu", "chrf", "exact_match", "perplexity"} == found["scores"].keys()
    assert "p" in found["scores"]["chrf"]
    assert "p" not in found["scores"]["perplexity"]
    put("text", " ".join(PAIRS.source * 40))
    found = compared(shell, "nano-0", "nano-1", "--text", "text")
    assert found["examples"] > 1
    row = found["scores"]["loss"]
    assert row["interval"][0] <= row["difference"] <= row["interval"][1]


def test_other_data_are_refused():
    one = Example("a text", "x", "y", 1.0, is_wrong=True)
    here, there = (Evaluation((Score("loss", 1.0),), examples=some) for some in ((one,), (one, one)))
    with pytest.raises(UserError, match="expected the same test data, got 1 and 2 examples; give the data for both"):
        check_same("a", "b", here, there)
