"""What tasks require of a network, and how they run one on many examples."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from clearhead.config import ModelConfig, StackConfig
from clearhead.config.heads import ClassificationHead, Head
from clearhead.config.inputs import TokenInput
from clearhead.data.batches import token_budget_batches
from clearhead.data.sequences import largest_of
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.model.mode import Evaluating
from clearhead.progress import counted
from clearhead.tasks.task import Batch, Trained, head_loss
from clearhead.text.tokenizers import Tokenizer

BATCH_TOKENS = 8192
"""Tokens of one batch outside of training."""
Ids = Sequence[Sequence[int]]


def check_writes(config: ModelConfig, *, where: str) -> None:
    """Raises UserError unless the network gives every token a probability."""
    if not config.predicts_tokens:
        raise UserError(f"{where}.head.kind: expected language, got {config.head.kind}; try a model with such a head")


def check_decoder(config: ModelConfig, what: str, *, where: str, remedy: str) -> None:
    """Raises UserError unless the network is a decoder alone that gives every token a probability."""
    if config.encoder is not None or config.decoder is None:
        got = "an encoder alone" if config.decoder is None else "an encoder too"
        raise UserError(f"{where}: expected a decoder alone {what}, got {got}; {remedy}")
    check_writes(config, where=where)


def extent_of(*splits: Ids) -> tuple[int, int]:
    """The length of the longest example of some splits, and their largest token."""
    return max(max(map(len, ids)) for ids in splits), max(map(largest_of, splits))


def check_fits(config: ModelConfig, *sizes: tuple[int, int], remedy: str) -> None:
    """Raises UserError unless each stack has positions for its longest example and embeddings for all its tokens.

    `sizes` are the length of the longest example and the largest token of each stack.
    """
    for (name, stack), (longest, largest) in zip(config.stacks.items(), sizes, strict=True):
        if stack.max_length is not None and longest > stack.max_length:
            raise UserError(f"model.{name}: expected positions for {longest} tokens, got {stack.max_length}; {remedy}")
        check_vocabulary(name, stack, largest)


def check_vocabulary(name: str, stack: StackConfig, largest: int) -> None:
    """Raises UserError unless the stack has an embedding for every token of the data, up to the `largest`."""
    if isinstance(stack.input, TokenInput) and largest >= stack.input.vocab_size:
        raise UserError(
            f"model.{name}: expected tokens below {stack.input.vocab_size}, the size of its embedding, got {largest};"
            " try the tokenizer that belongs to it"
        )


def with_head(config: ModelConfig, head: Head) -> ModelConfig:
    """The architecture under another head. Raises ValidationError if they do not fit."""
    return ModelConfig.model_validate({**dict(config), "head": head})


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """The names of classes; of several with one name, each gets its number, so that none hides another."""
    return tuple(name if names.count(name) == 1 else f"{name} ({i})" for i, name in enumerate(names))


def layers_of(head: Head) -> dict[str, Any]:
    """The fields of a classification head that other heads have too, so that a new head keeps its layers."""
    names = ("transform", "transform_bias", "bias", "dropout") if isinstance(head, ClassificationHead) else ()
    return {name: dict(head)[name] for name in names}


def most_tokens(model: Trained, otherwise: int) -> int:
    """The longest text that is read at once: as in training, and no more than every stack has positions for."""
    limits = [model.contract.max_length, *(stack.max_length for stack in model.network.config.stacks.values())]
    return min((limit for limit in limits if limit is not None), default=otherwise)


def batch_of(
    tokenizer: Tokenizer, ids: Ids, *, types: Ids | None = None, start: int | None = None, packed: bool = True
) -> tuple[Tokens, ...]:
    """Texts as one batch, with the type of each token if there are several.

    With `start`, the decoder of an encoder-decoder reads each text again, after that token and without its last one.
    """
    fill = tokenizer.pad_id or 0
    tokens = Tokens.pad(ids, fill=fill, packed=packed)
    if types is not None:
        tokens = Tokens(tokens.ids, tokens.valid, tokens.rows, types=Tokens.pad(types).ids)
    if start is None:
        return (tokens,)
    return tokens, Tokens.pad([[start, *text[:-1]] for text in ids], fill=fill, packed=packed)


def outputs_of(
    network: Transformer, tokenizer: Tokenizer, ids: Ids, *, types: Ids | None = None, start: int | None = None
) -> Iterator[tuple[list[int], Tokens, Tensor]]:
    """The numbers of the texts of each batch, the batch as its first stack reads it, and the network's output."""
    lengths, device = [*map(len, ids)], network.device
    budget = max([BATCH_TOKENS, *lengths])
    for rows in counted(token_budget_batches(lengths, max_tokens=budget, seed=0, epoch=0), "reading"):
        own = None if types is None else [types[i] for i in rows]
        inputs = batch_of(tokenizer, [ids[i] for i in rows], types=own, start=start)
        inputs = tuple(tokens.to(device) for tokens in inputs)
        with Evaluating(network), torch.inference_mode():
            output = network(*inputs)
        yield rows, inputs[0], output


def losses(network: Transformer, batches: Iterable[Batch], n: int) -> list[tuple[float, int]]:
    """The summed loss of each of `n` batches by the network's head, and the number of its labels."""
    device, sums = network.device, list[tuple[float, int]]()
    with Evaluating(network), torch.inference_mode():
        for batch in counted(batches, "reading", n):
            total, count = head_loss(network, batch.to(device))
            sums.append((total.item(), count))
    return sums


def total_loss(network: Transformer, batches: Iterable[Batch], n: int) -> tuple[float, int]:
    """The summed loss of `n` batches by the network's head, and the number of their labels."""
    sums = losses(network, batches, n)
    return sum(nats for nats, _ in sums), sum(count for _, count in sums)
