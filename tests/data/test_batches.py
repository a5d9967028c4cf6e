"""Every example once, like with like, the same order for the same (seed, epoch)."""

from collections import Counter
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.batches import pack_documents, spans, token_budget_batches, windows
from clearhead.errors import UserError

PAIR_LENGTHS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=200)
EPOCHS = st.integers(0, 3)


@given(lengths=PAIR_LENGTHS, max_tokens=st.integers(80, 400), epoch=EPOCHS)
def test_every_example_once_within_the_budget(lengths: list[tuple[int, int]], max_tokens: int, epoch: int):
    batches = token_budget_batches(lengths, max_tokens=max_tokens, seed=1, epoch=epoch)
    assert sorted(chain.from_iterable(batches)) == list(range(len(lengths)))
    for batch in batches:
        widest = max(lengths[i][0] for i in batch) + max(lengths[i][1] for i in batch)
        assert len(batch) * widest <= max_tokens
    assert batches == token_budget_batches(lengths, max_tokens=max_tokens, seed=1, epoch=epoch)


def translation_lengths(n: int) -> list[tuple[int, int]]:
    random = np.random.default_rng(0)
    source = 3 + random.poisson(11, n)
    target = np.maximum(2, source + random.normal(1, 3, n).round().astype(int))
    return list(zip(source.tolist(), target.tolist(), strict=True))


def test_little_padding_full_batches_and_another_order_each_epoch():
    lengths = translation_lengths(20_000)
    sizes = np.array(lengths)
    plans = [token_budget_batches(lengths, max_tokens=4096, seed=0, epoch=epoch) for epoch in range(2)]
    for plan in plans:
        padded = sum(len(batch) * sizes[batch].max(0).sum() for batch in plan)
        assert 1 - sizes.sum() / padded < 0.05
        assert len(plan) < 1.05 * sizes.sum() / 4096 + 2
    # Neither the order of the batches nor what is in them stays.
    widths = [[int(sizes[batch, 0].max()) for batch in plan] for plan in plans]
    assert widths[0] != widths[1]
    assert widths[0] != sorted(widths[0])
    assert not {frozenset(batch) for batch in plans[0]} & {frozenset(batch) for batch in plans[1]}


def test_an_example_over_the_budget_is_one_line():
    with pytest.raises(UserError, match=r"max_tokens: expected at least 30, .* got 20; try"):
        token_budget_batches([(10, 20), (1, 1)], max_tokens=20, seed=0, epoch=0)


@given(n_tokens=st.integers(2, 500), length=st.integers(1, 60), epoch=EPOCHS)
def test_windows_tile_the_text(n_tokens: int, length: int, epoch: int):
    if n_tokens <= length:
        with pytest.raises(UserError, match=f"expected at least {length + 1} tokens"):
            windows(n_tokens, length, seed=0, epoch=epoch)
        return
    starts = windows(n_tokens, length, seed=0, epoch=epoch)
    assert starts.min() >= 0
    assert starts.max() + length < n_tokens
    assert set(np.diff(np.sort(starts)).tolist()) <= {length}
    assert n_tokens - 1 - len(starts) * length < 2 * length
    assert starts.tolist() == windows(n_tokens, length, seed=0, epoch=epoch).tolist()


def test_windows_move_and_shuffle():
    first, second = (windows(10_000, 64, seed=0, epoch=epoch) for epoch in range(2))
    assert first.min() != second.min()
    assert first.tolist() != sorted(first.tolist())


@given(n_tokens=st.integers(0, 300), length=st.integers(1, 60))
def test_spans_predict_every_token_but_the_first_once(n_tokens: int, length: int):
    targets = [t for start, stop in spans(n_tokens, length) for t in range(start + 1, stop + 1)]
    assert targets == list(range(1, n_tokens))
    assert all(stop - start <= length for start, stop in spans(n_tokens, length))


@given(lengths=st.lists(st.integers(0, 70), max_size=80), width=st.integers(1, 32), epoch=EPOCHS)
def test_packing_keeps_every_token_once(lengths: list[int], width: int, epoch: int):
    rows = pack_documents(lengths, width, seed=0, epoch=epoch)
    assert all(0 < sum(map(len, row)) <= width for row in rows)
    cells = Counter((p.document, t) for row in rows for p in row for t in range(p.start, p.stop))
    assert cells == Counter((d, t) for d, n in enumerate(lengths) for t in range(n))
    assert rows == pack_documents(lengths, width, seed=0, epoch=epoch)
    # A document that fits is whole; no two rows could have been one (what best fit promises).
    assert all(p.stop - p.start == min(width, lengths[p.document] - p.start) for row in rows for p in row)
    free = sorted(width - sum(map(len, row)) for row in rows)
    assert len(free) < 2 or free[-1] + free[-2] < width or width == 1


def test_packing_wastes_little():
    lengths = np.random.default_rng(0).integers(1, 200, 2_000).tolist()
    plans = [pack_documents(lengths, 256, seed=0, epoch=epoch) for epoch in range(2)]
    assert sum(lengths) / (256 * len(plans[0])) > 0.98
    assert plans[0] != plans[1]
