"""`clearhead difference` on folders, on the checkpoints of a run, and on what it refuses."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from clearhead.api import Model
from clearhead.api.folders import own_files
from clearhead.capture import difference, effects
from clearhead.errors import UserError
from clearhead.recipe.tokenizers import Words
from clearhead.storage import checkpoints
from clearhead.text.tokenizers import Tokenizer
from tests.explorer.traced import CONFIGS, model_of
from tests.shell import Shell
from tests.tasks.small import SIZES
from tests.tasks.test_classification import rows, write_table

LINES = ["one two three", "", "four three", "two two one four three one", "three one"]


def other(model: Model, *, size: float) -> Model:
    """The model with one head changed, and everything else a little."""
    network = copy.deepcopy(model.network)
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.001 * torch.randn_like(parameter)
        out = network.get_parameter(f"{next(iter(network.stacks()))}.blocks.1.attn.out.weight")
        out[:, 4:8] += size * torch.randn_like(out[:, 4:8])
    return Model(network, model.tokenizer, model.generation)


@pytest.mark.parametrize("name", ["decoder_rotary_grouped", "encoder_classifier", "encoder_tagger_no_first_norm"])
def test_parts_and_answers_are_those_of_the_models(name: str) -> None:
    first = model_of(CONFIGS[name])
    second = other(first, size=1.0)
    found = difference(first, second, LINES, top=5)
    stack = next(iter(first.config.stacks))
    best = found.heads[0]
    assert best.site == f"{stack}.blocks.1.attn.z[h=1]"
    assert best.interval[0] <= best.own <= best.interval[1]
    assert found.n_texts == 4
    assert found.tensors[0].name == f"{stack}.blocks.1.attn.out.weight"
    for model, side in ((first, "first"), (second, "second")):
        (alone,) = effects(model, LINES, [best.site])
        assert getattr(best.effect, side) == pytest.approx(alone.mean, rel=1e-3, abs=1e-6)
    logs = [
        [torch.atleast_2d(model.logits(line).log_softmax(-1)) for line in LINES if line] for model in (first, second)
    ]
    changed = [float((a.argmax(-1) != b.argmax(-1)).float().mean()) for a, b in zip(*logs, strict=True)]
    kl = [float((a.exp() * (a - b)).sum(-1).mean()) for a, b in zip(*logs, strict=True)]
    assert found.answers is not None
    assert found.answers.changed.value == pytest.approx(np.mean(changed))
    assert found.answers.kl.value == pytest.approx(np.mean(kl), rel=1e-3, abs=1e-6)
    assert found.answers.n_changed_texts == sum(map(bool, changed))
    assert set(found.answers.scores) == ({"loss", "accuracy"} if stack == "decoder" else set())
    for side, each in zip(("first", "second"), logs, strict=True) if stack == "decoder" else ():
        ids = [first.reader.ids([line])[0] for line in LINES if line]
        losses = [-row[i, own[i + 1]] for row, own in zip(each, ids, strict=True) for i in range(len(own) - 1)]
        assert getattr(found.answers.scores["loss"], side) == pytest.approx(float(torch.stack(losses).mean()), rel=1e-3)


def test_nothing_changed() -> None:
    model = model_of(CONFIGS["encoder_decoder_post"])
    found = difference(model, model, [("one two", "eins"), ("four", "vier drei")], top=3)
    assert (found.tensors, found.n_texts) == ([], 2)
    assert found.heads == found.neurons == ()
    assert found.answers is not None
    assert (found.answers.changed.value, found.answers.texts, found.answers.scores["loss"].p) == (0.0, (), 1.0)


def test_the_command(shell: Shell) -> None:
    Path("a.txt").write_text("\n".join(LINES), "utf-8")
    model = model_of(CONFIGS["decoder_rotary_grouped"])
    model.save(Path("one"))
    other(model, size=1.0).save(Path("two"))
    said = shell.done(*"difference one two --data a.txt --top 3 --out found.json --page page.html".split())
    document = json.loads(Path("found.json").read_text("utf-8"))
    head, tensor = "decoder.blocks.1.attn.z[h=1]", "decoder.blocks.1.attn.out.weight"
    assert document["heads"][0]["site"] == document["units"][0]["site"] == head
    assert document["tensors"][0]["name"] == document["units"][0]["tensor"] == tensor
    for told in (head, "own weights", "in deviations from those beside them", "accuracy of the next token"):
        assert told in said.out
    page = Path("page.html").read_text("utf-8")
    for text in (head, tensor, *document["answers"]["texts"][0]["text"].split()):
        assert text in page
    assert "<script" not in page
    assert shell.done("difference", "one", "one").out.startswith("0 of ")


def test_checkpoints_of_a_run(shell: Shell) -> None:
    model = model_of(CONFIGS["decoder_pre_learned"])
    for step, one in ((2, model), (4, other(model, size=1.0))):
        files = own_files(one.network, one.generation)
        checkpoints.save(Path("run"), step, replace(files, raw=one.tokenizer.to_files()))
    assert "decoder.blocks.1.attn.out.weight" in shell.done("difference", "run@2", "run@4").lines[2]
    assert shell.refused("difference", "run@2", "run@3") == "step: expected one of 2, 4, got 3; try another"


def test_labels_are_scored(shell: Shell) -> None:
    write_table(Path("table.csv"), rows() * 3)
    line = "train table.csv --precision fp32 --training.max_tokens 64 --training.save_every 4 --out run --steps 12"
    shell.done(*f"{line} --training.optimizer.lr 1e-2".split(), *SIZES)
    steps = sorted(int(path.name.removeprefix("step-")) for path in Path("run").glob("step-*"))
    write_table(Path("other.csv"), rows()[:20])
    both = f"run@{steps[0]} run@{steps[-1]} --data other.csv"
    lines = shell.done(*f"difference {both} --texts 10 --top 2".split()).lines
    score = shell.done(*f"compare {both} --json".split()).json["scores"]["accuracy"]
    (line,) = [row for row in lines if row.startswith("accuracy")]
    assert line.split()[1:4] == [f"{score['first']:.4f}", f"{score['second']:.4f}", f"{score['difference']:+.4f}"]
    assert f"{score['p']:.3f}" in line


def test_other_vocabularies_and_pictures_are_refused() -> None:
    first = model_of(CONFIGS["decoder_pre_learned"])
    second = Model(first.network, Tokenizer.train(["a b c"], Words()), first.generation)
    with pytest.raises(UserError, match=r"^tokenizer: expected one vocabulary, got two"):
        difference(first, second)
    pictures = model_of(CONFIGS["vision"])
    with pytest.raises(UserError, match=r"^difference: expected models that read texts"):
        difference(pictures, pictures, LINES)
    assert difference(pictures, pictures).tensors == []
