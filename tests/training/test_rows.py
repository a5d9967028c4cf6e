"""A table that is updated by rows learns what a table that is updated as a whole does."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Tokens, Transformer
from clearhead.recipe.training import AdamW, Muon, Optimizer
from clearhead.training.optimizers import Optimizers, build
from clearhead.training.rows import by_rows, tables_of
from clearhead.training.sharding import clip

WORDS = 1 << 15


def network(*, tied: bool = False) -> Transformer:
    torch.manual_seed(0)
    stack = c.StackConfig(d_model=32, n_layers=1, n_heads=2, d_ff=32, input=c.TokenInput(vocab_size=WORDS))
    head = c.LanguageHead(tied=True) if tied else c.ClassificationHead(n_labels=3)
    return Transformer(c.ModelConfig(encoder=stack, head=head)).double()


def batches(many: tuple[int, int]) -> Iterator[Tensor]:
    """Few words, words among them again, many, then few again."""
    torch.manual_seed(1)
    for n_words in (40, 60, 40, WORDS, 40):
        yield torch.randint(0, n_words, many if n_words == WORDS else (4, 8))


def learnt(some: Transformer, optimizer: Optimizers) -> Iterator[float]:
    """The loss and the gradient's norm of each update, of two backward passes."""
    has_words = isinstance(some.config.head, c.LanguageHead)
    for ids in batches((4, 40) if has_words else (40, 500)):
        for half in ids.chunk(2):
            n_labels = half.numel() if has_words else len(half)
            loss = some(Tokens(half), labels=torch.zeros(n_labels, dtype=torch.long))
            loss.backward()
        norm = clip(optimizer.parameters, 0.5)
        optimizer.step()
        optimizer.zero_grad()
        yield from (loss.item(), norm)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("optimizer", [AdamW(lr=1e-2, weight_decay=0.1), Muon(lr=1e-2)])
def test_rows_equal_the_whole(optimizer: Optimizer, tied: bool):
    """Also the moments of words that were read once and never again."""
    whole, rows = network(tied=tied), network(tied=tied)
    tables = tables_of(rows)
    assert [table.weight.shape for table in tables] == [(WORDS, 32)]
    first, second = build(whole, optimizer), build(rows, optimizer)
    expected = list(learnt(whole, first))
    with by_rows(tables):
        assert list(learnt(rows, second)) == pytest.approx(expected, rel=1e-12)
    torch.testing.assert_close(rows.state_dict(), whole.state_dict(), rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(second.state_tensors(), first.state_tensors(), rtol=1e-9, atol=1e-14)
    assert not any(table.sparse for table in tables)


def test_the_gradient_of_a_tied_table_is_its_heads_with_rows_added():
    some = network(tied=True)
    with by_rows(tables_of(some)):
        some(Tokens(torch.zeros(4, 8, dtype=torch.long)), labels=torch.zeros(32, dtype=torch.long)).backward()
    gradient = tables_of(some)[0].weight.grad
    assert gradient is not None
    assert not gradient.is_sparse
