"""Reads tokens after those that a cache holds: the network's side of generation."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from clearhead.generation.fast import screening
from clearhead.generation.fast.recorded import MOST_ROWS, NotRepeatedError, Recorded, room_for
from clearhead.generation.paths import Paths
from clearhead.model import Tokens, Transformer
from clearhead.model.block import Memory
from clearhead.model.cache import GrowingCache
from clearhead.model.fast import packing
from clearhead.model.fast.snapshot import Code, Snapshot, obstacle, watching
from clearhead.model.mode import Evaluating
from clearhead.trace import tracing, watched

PATIENCE = 16
"""Steps before the matrices are packed. About as many steps save as much time as packing takes (docs/inference.md)."""
STEADY = 4
"""Steps of the same rows before one is recorded, about as many as save what a recording costs (docs/inference.md)."""


def no_gradients() -> torch.no_grad | torch.inference_mode:
    """Inference mode, or no_grad while tracing, because traced values may enter a computation with gradients."""
    return torch.no_grad() if tracing() else torch.inference_mode()


class Decoding:
    """The state between two steps: the cache, the input of each slot, and the input of each row of the memory."""

    def __init__(
        self,
        network: Transformer,
        *,
        length: int | None = None,
        slots: int = 1,
        takes_largest: bool = False,
        paths: Paths | None = None,
    ) -> None:
        """`slots` is the number of slots at first, and `length` the final number of tokens of each slot.

        With `length`, every step reads one token, so that steps can be recorded. With `takes_largest`, only
        the largest logit of a single text matters, so that logits can be screened. `paths` counts the steps.
        """
        self.network, self.cache, self.length = network, network.new_cache(), length
        self.evaluating, self.slots, self.wants_largest = Evaluating(network), slots, takes_largest
        self.recorded: Recorded | None = None
        self.paths = paths or Paths()
        self.memory: Memory | None = None
        self.inputs = self.read = torch.empty(0)
        """On the CPU, so that nobody waits for a GPU: the input of each slot, and of each row of the memory."""
        self.device = torch.device("cpu")
        self.begin()

    def begin(self) -> None:
        """Selects the fast paths that apply to the network as it is now and need no preparation."""
        network, self.n_steady, self.n_steps = self.network, 0, 0
        self.paths.obstacle = obstacle(network)
        is_known = self.paths.obstacle is None
        on_cpu = next(network.parameters()).device.type == "cpu"
        self.records = self.length is not None and is_known and on_cpu
        self.fast = packing.ready(network, rows=self.slots) if is_known else network
        self.takes_largest = self.wants_largest and self.slots == 1 and self.records
        self.screened = self.known_screen()
        self.snapshot: Snapshot | None = None
        self.code: Code | None = None
        """The code that a recording skips, as a step before it ran it."""
        self.look()

    def look(self) -> None:
        """Takes a snapshot of everything that the fast paths in use depend on."""
        if self.is_fast or self.screened or self.code:
            copied = packing.copied(self.fast)
            if self.screened is not None:
                copied.append(self.screened.screen.weight)
            self.snapshot = Snapshot(self.network, copied, self.code.namespaces if self.code else ())

    def changed(self) -> None:
        """Drops the fast paths and continues with the network itself, because it has changed since they were built."""
        self.unrecorded()
        self.paths.changes += 1
        self.begin()

    @property
    def reading(self) -> Transformer:
        """The network that reads the next tokens: the original one while it is traced or edited."""
        if watched():
            return self.network
        return self.fast if self.screened is None else self.screened.network

    @property
    def is_fast(self) -> bool:
        """True if products of the network are those of `packing`."""
        return self.fast is not self.network

    @property
    def n_read(self) -> int:
        """Tokens that the cache holds."""
        return self.cache.length

    def cut(self, n: int) -> None:
        """Keeps the first n tokens of a cache that grows."""
        if n < self.cache.length:
            assert isinstance(self.cache, GrowingCache)
            self.cache.cut(n)

    def start(self, prompts: Tokens, source: Tokens | None, never: Sequence[int] = ()) -> Tensor:
        """Reads source and prompts -> b v: the logits of the first new token, as `feed` gives them."""
        if source is not None:
            with self.evaluating, no_gradients():
                self.memory = self.reading.encode(source.to(prompts.ids.device))
        logits = self.feed(prompts, never)
        self.inputs = self.read = torch.arange(prompts.grid[0])
        self.device = prompts.ids.device
        if self.memory is not None:
            # The cache now holds the memory's keys and values. Only their layout is still needed.
            states, layout = self.memory
            self.memory = states.new_empty(0), replace(layout, rows=None, documents=None)
        return logits

    def feed(self, tokens: Tokens, never: Sequence[int] = ()) -> Tensor:
        """One or more tokens for each slot -> n v: logits of the next token.

        If only the largest logit counts, those that are provably not the largest of all without `never` are -inf.
        """
        found = self.logits(tokens, 1)[:, -1]
        if self.screened is None or watched():
            return found
        self.paths.screened += 1
        with no_gradients():
            return self.screened.logits(found, never)

    def logits(self, tokens: Tokens, last: int) -> Tensor:
        """One or more tokens for each slot -> n last v: the logits after each of the last tokens.

        While logits are screened, the result is n last d: the states from which the output matrix makes them.
        """
        with self.evaluating, no_gradients():
            if self.snapshot is not None and not watched() and not self.snapshot.holds():
                self.changed()
            self.n_steps += 1
            self.paths.steps += 1
            if self.n_steps == PATIENCE and not self.is_fast:
                self.fast = packing.packed(self.network, rows=self.slots)
                if self.is_fast:
                    self.screened = self.known_screen()
                    self.unrecorded()
                    self.look()
            self.screen()
            self.paths.packed += self.is_fast and not watched()
            if self.records and (logits := self.repeated(tokens)) is not None:
                return logits
            if self.records and self.code is None and self.n_steady >= STEADY:
                return self.watched_logits(tokens, last)
            return self.plain_logits(tokens, last)

    def plain_logits(self, tokens: Tokens, last: int) -> Tensor:
        """The logits, computed by the network's own code."""
        network = self.reading
        if tokens.grid[1] == last or tracing():
            return network.decode(tokens, self.memory, self.cache)[:, -last:]
        # Only the last logits of a prompt are needed, and all of them would be large.
        assert network.decoder is not None
        states, layout = network.decoder(network.see(tokens), self.memory, self.cache)
        return network.head(states[:, -last:], layout)

    def watched_logits(self, tokens: Tokens, last: int) -> Tensor:
        """The same as `plain_logits`; also finds out whether a recording may skip the code that runs."""
        with watching(self.network) as self.code:
            logits = self.plain_logits(tokens, last)
        self.paths.obstacle = self.code.obstacle
        self.records = self.paths.obstacle is None
        self.look()
        return logits

    def repeated(self, tokens: Tokens) -> Tensor | None:
        """n 1 v: the logits, computed by a recorded step; None if there is no recording. May start to record.

        The next step overwrites them.
        """
        is_step = tokens.grid[1] == 1 and not watched()
        self.n_steady = self.n_steady + 1 if is_step else 0
        if is_step and self.recorded is not None and self.recorded.left:
            try:
                logits = self.recorded(tokens)
            except NotRepeatedError:
                self.changed()
                self.records = False
                return None
            self.paths.recorded += 1
            return logits
        self.unrecorded()
        assert self.length is not None
        rows, length = tokens.grid[0], self.cache.length
        if self.n_steady <= STEADY or self.code is None or self.length - length <= STEADY or rows > MOST_ROWS:
            return None
        try:
            room = room_for(rows, length, self.length)
            self.recorded = Recorded(self.reading, tokens, self.memory, self.cache, room=room)
        except RuntimeError as error:  # Such as CannotRecordError. The cache is as it was: an ordinary step can follow.
            self.records, self.paths.obstacle = False, str(error)
            return None
        self.cache = self.recorded.cache
        self.paths.recorded += 1
        return self.recorded.logits

    def known_screen(self) -> screening.Screened | None:
        """The screen that an earlier text has made, if only the largest logit matters."""
        return screening.screened(self.network, self.fast, prepare=False) if self.takes_largest else None

    def screen(self) -> None:
        """Starts to screen logits as soon as that is faster."""
        waits = self.takes_largest and self.screened is None and self.n_steps >= PATIENCE
        if waits and screening.due(self.network):
            self.screened = screening.screened(self.network, self.fast, prepare=True)
            self.takes_largest = self.screened is not None
            if self.takes_largest:
                self.unrecorded()
                self.look()

    def unrecorded(self) -> None:
        """Drops the recorded step and continues with a cache that grows."""
        if self.recorded is not None:
            self.cache, self.recorded = self.recorded.cache.growing(), None

    def follow(self, index: Tensor) -> None:
        """Slot i continues from what slot index[i] has read; `index` is on the CPU."""
        with no_gradients():
            inputs = self.inputs[index]
            if torch.equal(inputs, self.inputs):
                # Slots of one input share memory and padding. Only their past differs.
                rows = (index != torch.arange(len(index))).nonzero()[:, 0]
                if len(rows):
                    rows, sources = rows.to(self.device), index[rows].to(self.device)
                    for block in self.cache.blocks:
                        block.attn.move(rows, sources)
                        block.mix.move(rows, sources)
                return
            read = _shared(inputs)
            rows = torch.searchsorted(self.read, read).to(self.device)
            self.inputs, self.read = inputs, read
            self.unrecorded()
            self.n_steady = 0
            self.cache.select(index.to(self.device), rows)
            if self.memory is not None:
                states, layout = self.memory
                positions = layout.positions[rows] if len(layout.positions) > 1 else layout.positions
                valid = None if layout.valid is None else layout.valid[rows]
                grid = (len(rows), layout.grid[1])
                self.memory = states, replace(layout, grid=grid, positions=positions, valid=valid)


def forget(network: Transformer) -> None:
    """Frees what is kept for the next text: packed matrices and the screen of the output matrix."""
    packing.forget(network)
    screening.forget(network)


def _shared(inputs: Tensor) -> Tensor:
    """The input of each kept row of the memory: a row for each input, or for each slot if their numbers differ."""
    each, counts = inputs.unique_consecutive(return_counts=True)
    return each if bool((counts == counts[:1]).all()) else inputs
