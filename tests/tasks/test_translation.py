import math

import pytest

from clearhead.data.sources import Pairs
from tests.training.tiny import encoded, new_network, translation


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
