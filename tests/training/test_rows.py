"""A table that is updated by rows learns what a table that is updated as a whole does."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from clearhead import config as c
from clearhead.model import Tokens, Transformer
from clearhead.recipe.training import AdamW, Muon, Optimizer
from clearhead.training.optimizers import Optimizers, build
from clearhead.training.rows import by_rows, large_tables
from clearhead.training.sharding import clipping, norm_of

WORDS = 1 << 15


def network(*, tied: bool = False) -> Transformer:
    torch.manual_seed(0)
    stack = c.StackConfig(d_model=32, n_layers=1, n_heads=2, d_ff=32, input=c.TokenInput(vocab_size=WORDS))
    head = c.LanguageHead(tied=True) if tied else c.ClassificationHead(n_labels=3)
    return Transformer(c.ModelConfig(encoder=stack, head=head)).double()


def batches() -> Iterator[Tensor]:
    """Few words, words among them again, many, then few again."""
    torch.manual_seed(1)
    for n_words in (40, 60, 40, WORDS, 40):
        yield torch.randint(0, n_words, (40, 500) if n_words == WORDS else (4, 8))


def learnt(some: Transformer, optimizer: Optimizers, tables: list[nn.Embedding]) -> Iterator[float]:
    """The loss and the gradient's norm of each update, of two backward passes."""
    for ids in batches():
        with by_rows(tables):
            for half in ids.chunk(2):
                loss = some(Tokens(half), labels=torch.zeros(len(half), dtype=torch.long))
                loss.backward()
        norm = norm_of(optimizer.parameters)
        optimizer.step(factor=clipping(norm, 0.5))
        optimizer.zero_grad()
        yield from (loss.item(), norm)


@pytest.mark.parametrize("optimizer", [AdamW(lr=1e-2, weight_decay=0.1), Muon(lr=1e-2)])
def test_rows_equal_the_whole(optimizer: Optimizer):
    """Also the moments of words that were read once and never again."""
    whole, rows = network(), network()
    tables = large_tables(rows)
    assert [table.weight.shape for table in tables] == [(WORDS, 32)]
    first, second = build(whole, optimizer), build(rows, optimizer)
    expected = list(learnt(whole, first, []))
    assert list(learnt(rows, second, tables)) == pytest.approx(expected, rel=1e-12)
    torch.testing.assert_close(rows.state_dict(), whole.state_dict(), rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(second.state_tensors(), first.state_tensors(), rtol=1e-9, atol=1e-14)
    assert not any(table.sparse for table in tables)


@pytest.mark.parametrize("n_batches", [1, 2])
def test_rows_of_a_tied_table_are_added_to_the_gradient_of_its_head(n_batches: int):
    whole, rows = network(tied=True), network(tied=True)
    table = rows.last_stack.table
    assert large_tables(rows) == [table]

    def learn(some: Transformer) -> None:
        for i in range(n_batches):
            some(Tokens(torch.full((2, 4), i + 1)), labels=torch.arange(8)).backward()

    learn(whole)
    with by_rows([table]):
        learn(rows)
    assert table.weight is rows.get_parameter("head.output.weight")
    assert not table.sparse
    for name, parameter in whole.named_parameters():
        torch.testing.assert_close(rows.get_parameter(name).grad, parameter.grad, rtol=1e-12, atol=1e-14)


def test_a_table_that_two_stacks_share_has_the_rows_of_both():
    stack = c.StackConfig(d_model=32, n_layers=1, n_heads=2, d_ff=32, input=c.TokenInput(vocab_size=WORDS))
    config = c.ModelConfig(encoder=stack, decoder=stack, head=c.LanguageHead(tied=False), share_embeddings=True)
    some = Transformer(config)
    with by_rows(large_tables(some)):
        some(torch.full((1, 4), 3), torch.full((1, 4), 5), labels=torch.arange(4)).backward()
    gradient = some.last_stack.table.weight.grad
    assert gradient is not None
    assert set(gradient.coalesce().indices()[0].tolist()) == {3, 5}
