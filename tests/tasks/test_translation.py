import math

import pytest
import torch

from clearhead.api import architecture
from clearhead.data.sources import Pairs
from clearhead.model import Transformer
from clearhead.model.layout import Tokens
from clearhead.recipe import merge, read, recipe_folders
from clearhead.tasks.registry import validate
from clearhead.tasks.task import Batch
from clearhead.tasks.translation import TranslationRecipe
from tests.training.tiny import encoded, new_network, translation

RECIPES = sorted(path.stem for folder in recipe_folders() for path in folder.glob("*.toml"))
FILES = {"translation": {"kind": "parallel", "source": "a", "target": "b"}, "lm": {"paths": ["a"]}}


@pytest.mark.parametrize("packed", [False, True])
def test_a_batch_is_what_the_paper_says(packed: bool):
    """Source with its end; the target from bos, predicting each next token up to eos."""
    task = translation(packed=packed)
    batch = task.collate([0, 1, 2])
    source, target = batch.inputs
    bos, eos = task.tokenizer.bos_id, task.tokenizer.eos_id
    ends = list(batch.labels)
    for row, i in enumerate([0, 1, 2]):
        s, t = task.train.source[i], task.train.target[i]
        assert source.ids[row, : len(s) + 1].tolist() == [*s, eos]
        assert target.ids[row, : len(t) + 1].tolist() == [bos, *t]
        assert [int(x) for x in ends[: len(t) + 1]] == [*t, eos]
        ends = ends[len(t) + 1 :]
    assert not ends
    assert (target.rows is not None) == (source.rows is not None) == packed
    assert batch.count == sum(len(task.train.target[i]) + 1 for i in range(3))


def test_smoothing_spreads_its_share_over_the_vocabulary():
    task = translation()
    network, batch = new_network(task).eval(), task.collate([0, 1, 2])
    log_p = network(*batch.inputs).log_softmax(-1)
    plain = -log_p[range(batch.count), batch.labels].sum()
    wanted = 0.9 * plain - 0.1 * log_p.mean(-1).sum()
    assert task.loss(network, batch, smoothing=0.1)[0].item() == pytest.approx(wanted.item(), rel=1e-5)


def test_every_pair_once_an_epoch_within_the_budget():
    task = translation(50, max_tokens=60)
    lengths = task.pairs.lengths(task.train.source, task.train.target)
    orders = []
    for epoch in range(3):
        plan = task.plan(seed=0, epoch=epoch)
        assert sorted(i for batch in plan for i in batch) == list(range(50))
        assert all(len(b) * sum(max(lengths[i][side] for i in b) for side in (0, 1)) <= 60 for b in plan)
        orders.append([list(batch) for batch in plan])
    assert orders[0] != orders[1] != orders[2]
    assert orders[1] == [list(batch) for batch in task.plan(seed=0, epoch=1)]


def test_loss_does_not_depend_on_batches_and_leaves_the_mode():
    network = new_network(translation(), dropout=0.5).train()
    values = []
    for max_tokens, packed in ((60, True), (100_000, False)):
        task = translation(max_tokens=max_tokens, packed=packed)
        nats, n_tokens = task.pairs.log_loss(network, task.valid.source, task.valid.target)
        values.append(nats / n_tokens)
    assert values[0] == pytest.approx(values[1], rel=1e-5)
    assert network.training


def test_a_sentence_beyond_every_budget_is_measured_all_the_same():
    task = translation()
    long = Pairs([" ".join(["one"] * 3000)], [" ".join(["eins"] * 3000)])
    pairs = encoded(task.tokenizer, long)
    nats, _ = task.pairs.log_loss(new_network(task), pairs.source, pairs.target)
    assert math.isfinite(nats)


@pytest.mark.parametrize("name", [name for name in RECIPES if read(name)["task"] in FILES])
def test_first_loss_is_that_of_guessing(name: str):
    """ln V, for the model of every recipe that comes along, with a vocabulary of 1000."""
    tables = read(name)
    recipe = validate(merge(tables, {"data": {"train": FILES[tables["task"]]}}), where=name)
    torch.manual_seed(0)
    network = Transformer(architecture(recipe.model, 1000)).eval()
    random = [torch.randint(1000, (4, 12)) for _ in range(2 if isinstance(recipe, TranslationRecipe) else 1)]
    labels = torch.randint(1000, (48,))
    with torch.no_grad():
        total, count = translation().loss(network, Batch(tuple(Tokens(ids) for ids in random), labels))
    assert total.item() / count == pytest.approx(math.log(1000), abs=0.12)
