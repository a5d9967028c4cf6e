"""generate() yields one event for each token. complete() generates for many inputs and returns only the results."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from clearhead.brief import brief
from clearhead.errors import UserError
from clearhead.generation.compiled import Compiled
from clearhead.generation.sampling import History
from clearhead.generation.search import BeamSearch, Hypothesis, Sampling, Search, Step, Stop
from clearhead.generation.settings import changed
from clearhead.generation.threads import threads_of, using
from clearhead.model import Tokens, Transformer
from clearhead.model.block import Memory
from clearhead.model.mode import Evaluating
from clearhead.model.packing import forget, packed, ready
from clearhead.progress import counted
from clearhead.recipe.generation import GenerationConfig
from clearhead.trace import tracing, watched

PATIENCE = 16
"""Steps before the matrices are packed. About as many steps save as much time as packing takes (docs/inference.md)."""
BUDGET = 4096
"""Padded source or prompt tokens in a batch of `complete`, each counted once for each hypothesis."""


@dataclass(frozen=True)
class Finished:
    """The last event: for each input its n_best hypotheses, best first."""

    __repr__ = brief

    hypotheses: list[list[Hypothesis]]


GenerationEvent = Step | Finished


def generate(
    network: Transformer,
    prompts: Tokens | None = None,
    *,
    source: Tokens | None = None,
    config: GenerationConfig | None = None,
    bos_id: int | None = None,
    eos_id: int | None = None,
    pad_id: int | None = None,
    stop: Stop | None = None,
    numbers: Sequence[int] | None = None,
    **settings: object,
) -> Iterator[GenerationEvent]:
    """Yields one `Step` for each token, then `Finished`. The network is in evaluation mode only during a step.

    A decoder continues `prompts` (left-padded), or begins with the start token; with an encoder it first reads
    `source`, one row a prompt. Special tokens that the config names take precedence over bos_id, eos_id and pad_id.
    Inputs that are done leave the batch. `numbers` (default: their rows) identify the inputs and decide their samples,
    so that a text does not depend on its batch. A trace records each step as one forward pass.

    `settings` change the config: temperature=0.5. Raises UserError, at the call, for an unknown setting, a prompt that
    is too long, or an input that this network does not take.
    """
    config = changed(config or GenerationConfig(), settings).with_ids(start_id=bos_id, end_id=eos_id, pad_id=pad_id)
    prompts = _prompts(network, prompts, source, config)
    b, width = prompts.grid
    limit = network.decoder.config.max_length if network.decoder else None
    if limit is not None and width > limit:
        raise UserError(
            f"prompt: expected at most {limit} tokens, where this model's positions end, got {width};"
            " cut the prompt or use a longer model"
        )
    n_steps = config.max_new_tokens if limit is None else min(config.max_new_tokens, limit - width + 1)
    valid = torch.ones_like(prompts.ids, dtype=torch.bool) if prompts.valid is None else prompts.valid
    history = History(prompts.ids, valid, width)
    search: Search
    if config.beams > 1:
        search = BeamSearch(history, config, limit=n_steps, stop=stop)
    else:
        numbers = range(b) if numbers is None else numbers
        search = Sampling(history, config, limit=n_steps, stop=stop, numbers=numbers)
    return _events(network, prompts, source, search)


def _prompts(network: Transformer, prompts: Tokens | None, source: Tokens | None, config: GenerationConfig) -> Tokens:
    """The first tokens of the decoder, on the network's device. Raises UserError if the inputs do not fit."""
    if network.decoder is None:
        raise UserError("generate: expected a network with a decoder, got an encoder, which writes nothing")
    if (source is None) != (network.encoder is None):
        has, got = ("an", "no") if network.encoder is not None else ("no", "a")
        raise UserError(f"generate: this network has {has} encoder, got {got} source")
    table = network.decoder.table.weight
    for name in ("start_id", "forced_first_id", "forced_last_id"):
        if (token := dict(config)[name]) is not None and token >= len(table):
            raise UserError(f"generation.{name}: expected a token of the vocabulary, below {len(table)}, got {token}")
    rows = 1 if source is None else source.ids.shape[0]
    if prompts is None:
        if config.start_id is None:
            raise UserError("generate: expected a prompt or a begin token (start_id), got neither")
        return Tokens(torch.full((rows, 1), config.start_id, device=table.device))
    if source is not None and prompts.grid[0] != rows:
        raise UserError(f"generate: expected one prompt a source, got {prompts.grid[0]} and {rows}")
    if prompts.rows is not None or (prompts.valid is not None and not prompts.valid[:, -1].all()):
        raise UserError("generate: expected prompts padded on the left: Tokens.pad(..., left=True)")
    return prompts.to(table.device)


def _events(network: Transformer, prompts: Tokens, source: Tokens | None, search: Search) -> Iterator[GenerationEvent]:
    try:
        alone = prompts.grid[1] + search.ends.limit - 1 if search.b * search.k == 1 else None
        decoding = Decoding(network, alone=alone, slots=search.b * search.k)
        logits = decoding.start(prompts, source).repeat_interleave(search.k, 0)
        decoding.follow(torch.arange(search.b, device=logits.device).repeat_interleave(search.k))
        while True:
            with _no_gradients():
                move = search.advance(logits)
            yield move.step
            if not len(move.tokens):
                break
            if move.follow is not None:
                decoding.follow(move.follow)
            logits = decoding.feed(Tokens(move.tokens[:, None]))
        yield Finished(search.hypotheses())
    finally:
        if network.training:
            forget(network)  # its weights are about to change


def _no_gradients() -> torch.no_grad | torch.inference_mode:
    """Inference mode, or no_grad while tracing, because traced values may enter a computation with gradients."""
    return torch.no_grad() if tracing() else torch.inference_mode()


class Decoding:
    """The state between two steps: the cache, the input of each slot, and the input of each row of the memory."""

    def __init__(self, network: Transformer, *, alone: int | None = None, slots: int = 1) -> None:
        """`alone` is the final number of tokens of a single slot, `slots` how many there are at first."""
        self.network, self.cache, self.alone = network, network.new_cache(), alone
        self.evaluating = Evaluating(network)
        self.compiled: Compiled | None = None
        self.fast, self.n_steps, self.slots = ready(network, rows=slots), 0, slots
        self.threads = threads_of(self.fast, slots, measure=False)
        self.memory: Memory | None = None
        self.inputs = self.read = torch.empty(0)

    @property
    def reading(self) -> Transformer:
        """The network that reads the next tokens: the original one while it is traced or edited."""
        return self.network if watched() else self.fast

    def start(self, prompts: Tokens, source: Tokens | None) -> Tensor:
        """Read source and prompts -> b v: logits of the first new token."""
        if source is not None:
            with self.evaluating, _no_gradients():
                self.memory = self.reading.encode(source.to(prompts.ids.device))
        logits = self.feed(prompts)
        self.inputs = self.read = torch.arange(prompts.grid[0], device=prompts.ids.device)
        if self.memory is not None:
            # The cache now holds the memory's keys and values. Only their layout is still needed.
            states, layout = self.memory
            self.memory = states.new_empty(0), replace(layout, rows=None, documents=None)
        return logits

    def feed(self, tokens: Tokens) -> Tensor:
        """One or more tokens for each slot -> n v: logits of the next token."""
        with self.evaluating, _no_gradients(), using(self.threads if self.n_steps else torch.get_num_threads()):
            self.n_steps += 1
            if self.network.compiles_steps and self.alone is not None and self.cache.length and not watched():
                self.compiled = self.compiled or Compiled(self.network, self.cache, length=self.alone)
                self.cache = self.compiled.cache
                return self.compiled(tokens, self.memory)[:, -1]
            if self.n_steps == PATIENCE:
                self.fast = packed(self.network, rows=self.slots)
                self.threads = threads_of(self.fast, self.slots, measure=True)
            network = self.reading
            if tokens.grid[1] == 1 or tracing():
                return network.decode(tokens, self.memory, self.cache)[:, -1]
            # Only the last logits of a prompt are needed, and all of them would be large.
            assert network.decoder is not None
            states, layout = network.decoder(tokens, self.memory, self.cache)
            return network.head(states[:, -1:], layout)[:, -1]

    def follow(self, index: Tensor) -> None:
        """Slot i continues from what slot index[i] has read."""
        with _no_gradients():
            inputs = self.inputs[index]
            if torch.equal(inputs, self.inputs):
                # Slots of one input share memory and padding. Only their past differs.
                rows = (index != torch.arange(len(index), device=index.device)).nonzero()[:, 0]
                if len(rows):
                    for block in self.cache.blocks:
                        block.attn.move(rows, index[rows])
                return
            read = _shared(inputs)
            rows = torch.searchsorted(self.read, read)
            self.inputs, self.read = inputs, read
            self.cache.select(index, rows)
            if self.memory is not None:
                states, layout = self.memory
                positions = layout.positions[rows] if len(layout.positions) > 1 else layout.positions
                valid = None if layout.valid is None else layout.valid[rows]
                grid = (len(rows), layout.grid[1])
                self.memory = states, replace(layout, grid=grid, positions=positions, valid=valid)


def _shared(inputs: Tensor) -> Tensor:
    """The input of each kept row of the memory: a row for each input, or for each slot if their numbers differ."""
    each, counts = inputs.unique_consecutive(return_counts=True)
    return each if bool((counts == counts[:1]).all()) else inputs


# --- many inputs --------------------------------------------------------------------------------------------


def in_batches(lengths: Sequence[int], *, budget: int) -> list[list[int]]:
    """Groups indices of inputs into batches of similar length, longest first.

    A batch has at most `budget` tokens, padding included, or a single input.
    """
    batches: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= budget:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches


def complete(
    network: Transformer,
    prompts: Sequence[Sequence[int]] | None = None,
    *,
    source: Sequence[Sequence[int]] | None = None,
    config: GenerationConfig | None = None,
    bos_id: int | None = None,
    eos_id: int | None = None,
    pad_id: int | None = None,
    stop: Stop | None = None,
    budget: int = BUDGET,
    **settings: object,
) -> list[list[Hypothesis]]:
    """The n_best hypotheses of each input, best first. Arguments are as in `generate`; lengths may differ."""
    config = changed(config or GenerationConfig(), settings).with_ids(start_id=bos_id, end_id=eos_id, pad_id=pad_id)
    found: dict[int, list[Hypothesis]] = {}
    for batch, event in completing(network, prompts, source=source, config=config, stop=stop, budget=budget):
        if isinstance(event, Finished):
            found |= zip(batch, event.hypotheses, strict=True)
    return [found[i] for i in range(len(found))]


def completing(
    network: Transformer,
    prompts: Sequence[Sequence[int]] | None = None,
    *,
    source: Sequence[Sequence[int]] | None = None,
    config: GenerationConfig,
    stop: Stop | None = None,
    budget: int = BUDGET,
) -> Iterator[tuple[list[int], GenerationEvent]]:
    """Each event of the batches of `complete`, one batch after another, with the indices of its inputs."""
    if prompts is not None and source is not None and len(prompts) != len(source):
        raise UserError(f"expected one prompt a source, got {len(prompts)} and {len(source)}")
    inputs = source if source is not None else prompts
    lengths = [1] if inputs is None else list(map(len, inputs))
    if not all(lengths):
        raise UserError(f"input {lengths.index(0) + 1}: expected at least one token, got none; leave it out")
    for batch in counted(in_batches(lengths, budget=budget // config.width), "writing"):
        for event in generate(
            network,
            None if prompts is None else Tokens.pad([prompts[i] for i in batch], left=True),
            source=None if source is None else Tokens.pad([source[i] for i in batch], packed=True),
            config=config,
            stop=stop,
            numbers=batch,
        ):
            yield batch, event
