"""Fine-tuning is raced like against like; no figure is judged here."""

import pytest
import torch

from benchmarks.contestants.tuner import OURS, PEER, Assignment, Turn
from benchmarks.fine_tuning import race, table
from clearhead.api import Model
from clearhead.checkpoints.families import preset
from clearhead.model import Transformer
from clearhead.recipe.tokenizers import Words
from clearhead.text.tokenizers import Tokenizer


def turn(n_tokens: int, seconds: float) -> Turn:
    return Turn(n_examples=10, n_tokens=n_tokens, seconds=seconds, cpu_seconds=2 * seconds, loss=0.5)


def test_the_ratio_is_that_of_the_medians_of_tokens_a_second():
    turns = {OURS: [turn(100, 1.0), turn(300, 1.0), turn(200, 1.0)], PEER: [turn(100, 1.0)] * 3}
    shown = table("ewt", turns)
    assert "ratio **2.00**, rounds 1.00 to 3.00, by CPU time 2.00; floor 1.5, reach 2.5." in shown
    assert f"| {OURS} | 200 | 100 to 300 | 100 | 20.0 | 0.500 |" in shown


@pytest.mark.slow
@pytest.mark.parametrize("job", ["ewt", "sst2"])
def test_both_contestants_train(job: str, tmp_path):
    pytest.importorskip("accelerate")
    words = "good bad film plot cast".split()
    rows = [(f"a {a} {b}", str(i % 2)) for i, a in enumerate(words * 20) for b in words]
    (tmp_path / "sst2").mkdir()
    (tmp_path / "ud_english_ewt").mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / "sst2" / name).write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    text = "\n".join("".join(f"{w}\t{'X' if w == 'a' else 'Y'}\n" for w in a.split()) for a, _ in rows)
    for name in ("en_ewt-ud-train.conllu.gz", "en_ewt-ud-dev.conllu"):
        (tmp_path / "ud_english_ewt" / name).write_text(text, encoding="utf-8")
    tokenizer = Tokenizer.train([a for a, _ in rows], Words())
    config = preset("bert-base").model_dump()
    small = {"d_model": 32, "n_layers": 1, "n_heads": 2, "d_ff": 32}
    config["encoder"] |= small | {"input": config["encoder"]["input"] | {"vocab_size": tokenizer.vocab_size}}
    torch.manual_seed(0)
    folder = Model(Transformer(type(preset("bert-base")).model_validate(config)), tokenizer).save(tmp_path / "model")
    both = [
        Assignment.model_validate({"kind": k, "job": job, "data": tmp_path, "checkpoint": folder, "threads": 1})
        for k in (OURS, PEER)
    ]
    turns = race(both, rounds=2, updates=4)
    assert [[one.n_examples > 0 and one.loss > 0 for one in turns[kind]] for kind in (OURS, PEER)] == [[True] * 2] * 2
    assert f"| {PEER} |" in table("ewt" if job == "ewt" else "sst2", turns)
