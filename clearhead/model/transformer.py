"""Stack and Transformer: the network, which knows no tokenizer, task, checkpoint format or device mesh."""

import math
import re
from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from clearhead.config import GridInput, Init, LanguageHead, ModelConfig, PictureInput, StackConfig
from clearhead.errors import UserError
from clearhead.model import heads, positions  # noqa: F401 - their kinds of op are there for positions of other packages
from clearhead.model.attention import Attention
from clearhead.model.attention_bias import AttentionBias, BiasSteps, PositionEncoding
from clearhead.model.block import Block, Memory
from clearhead.model.cache import Cache, GrowingCache
from clearhead.model.embedding import PatchEmbedding, TokenEmbedding, build_embedding
from clearhead.model.experts import Router, counted_load, tell_layout
from clearhead.model.fast.activation_checkpointing import keep_activations
from clearhead.model.fast.snapshot import obstacle
from clearhead.model.layout import Layout, Tokens, axes_of, check_tokens, in_picture
from clearhead.model.linear import Table
from clearhead.model.loss import IGNORED
from clearhead.model.mode import Part
from clearhead.model.norm import build_norm
from clearhead.model.ops import Mask, Steps
from clearhead.model.projector import Projector
from clearhead.trace import HasAttached, tell_padding, tracing


def draw(part: nn.Module, init: Init) -> None:
    """Draws new weights: small tables, zero biases."""
    for module in part.modules():
        if isinstance(module, nn.Linear):
            if init.matrices == "xavier":
                nn.init.xavier_uniform_(module.weight)
            else:
                nn.init.normal_(module.weight, std=init.std)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for module in part.modules():
        if isinstance(module, nn.Embedding | Router):
            nn.init.normal_(module.weight, std=init.std)
        elif isinstance(module, PatchEmbedding):
            for vectors in module.first.values():
                nn.init.normal_(vectors.detach(), std=init.std)


def initialize(network: "Transformer", init: Init) -> None:
    """Draws new weights so that the first loss is about ln V. Writers to the residual stream shrink with depth."""
    draw(network, init)
    if init.depth_scaled:
        for stack in filter(None, (network.encoder, network.decoder)):
            branches = stack.config.n_layers * (3 if stack is network.decoder and network.encoder else 2)
            for name, parameter in stack.named_parameters():
                if re.search(r"\.(attn\.out|mix\.out|cross\.out|ffn\.(.*\.)?down)\.weight$", name):
                    with torch.no_grad():
                        parameter /= math.sqrt(branches)


Reads = Callable[[Layout], Tensor | None]
"""Marks the cells that are read among a layout's n valid ones: n, bool; None for all."""


class LayerKind(NamedTuple):
    """The ways in which layers of one stack may differ."""

    windowed: bool
    rotary: bool


class Stack(Part):
    """embed -> blocks -> final norm."""

    def __init__(self, config: StackConfig, *, causal: bool, cross: bool) -> None:
        super().__init__()
        self.config, self.causal, self.cross = config, causal, cross
        self.embed = build_embedding(config)
        self.positions: PositionEncoding = config.positions.build(config, causal=causal)
        local = config.window_positions
        self.window_positions: PositionEncoding | None = None if local is None else local.build(config, causal=causal)
        self.blocks = nn.ModuleList(Block(config, i, cross=cross) for i in range(config.n_layers))
        self.kinds = [LayerKind(config.is_windowed(i), config.is_rotary(i)) for i in range(config.n_layers)]
        self.final_norm = build_norm(config.at_layer(config.n_layers)) if config.has_final_norm else None
        self.recompute = False
        """True if training keeps only the input of each block, and computes the rest again in the backward pass.

        A block with a hook or with code of another package keeps everything: its code might compute something else.
        """

    def tie(self) -> None:
        """Gives the blocks of a group the weights of its first."""
        for i, block in enumerate(self.blocks):
            first = self.blocks[i - i % self.config.repeats]
            for name in [name for name, _ in block.named_parameters()] if first is not block else ():
                owner, _, last = name.rpartition(".")
                setattr(block.get_submodule(owner), last, first.get_parameter(name))

    @property
    def table(self) -> nn.Embedding:
        """The token table of a stack that reads tokens, as long as it is not rounded."""
        assert isinstance(self.lookup, nn.Embedding)
        return self.lookup

    @property
    def lookup(self) -> Table:
        """The token table of a stack that reads tokens, rounded or not."""
        assert isinstance(self.embed, TokenEmbedding)
        return self.embed.tokens

    def forward(
        self, tokens: Tokens, memory: Memory | None = None, cache: Cache | None = None, reads: Reads | None = None
    ) -> Memory:
        """Last states, b t d (or packed m d), and their layout. Padded while traced: taps name the padded axes.

        `reads` answers which states are read. After its attention the last block computes only those.
        """
        check_tokens(tokens, self.config)
        if tracing() or (cache is not None and tokens.valid is None):
            tokens = tokens.padded()
        if cache is None:
            queries = keys = self.embed.layout(tokens)
        else:
            queries, keys = cache.extend(tokens)
        self.check_length(keys, counted=tokens.positions is None and keys.valid is None)
        tell_padding(t=queries.valid)
        if self.config.experts is not None:
            tell_layout(queries)
        if memory is not None and cache is None:
            if memory[1].grid[0] != tokens.grid[0]:
                raise UserError(f"target: expected one row a source, {memory[1].grid[0]}, got {tokens.grid[0]}")
            memory = memory[1].blank(memory[0]), memory[1]
        x = self.embed(tokens, queries, self.positions.embedding(queries.positions))
        kinds = dict.fromkeys(self.kinds)
        biases = {kind: self.attn_bias(queries, keys, kind=kind, dtype=x.dtype) for kind in kinds}
        memory_bias = None if memory is None else AttentionBias.between(queries, memory[1], dtype=x.dtype)
        onto = None if reads is None or cache is not None else self.last_layout(queries, reads)
        for i, block in enumerate(self.blocks):
            again = self.recompute and self.training and obstacle(block) is None
            run = partial(checkpoint, keep_activations(block), use_reentrant=False) if again else block
            x = run(
                x,
                queries,
                biases[self.kinds[i]],
                memory=memory,
                memory_bias=memory_bias,
                cache=cache.blocks[i] if cache else None,
                onto=onto if i + 1 == len(self.blocks) else None,
            )
        return (x if self.final_norm is None else self.final_norm(x)), onto or queries

    def last_layout(self, layout: Layout, reads: Reads) -> Layout | None:
        """The layout of the last block after its attention; None if it is no smaller than that of the others.

        How small it is only a CPU knows at once; a GPU would have to be waited for.
        """
        on_cpu = layout.positions.device.type == "cpu"
        if not on_cpu or tracing() or torch.compiler.is_compiling() or self.config.experts is not None:
            return None
        return layout.only(reads(layout))

    def steps(self, to: Steps, path: str, memory: str | None = None, layers: Collection[int] | None = None) -> str:
        """Lists the ops of `forward`, of these layers or all; returns the address of the last states."""
        to.masks |= self.masks(path)
        x = self.embed.steps(to, path, self.positions)
        states = self.positions.relation_steps(to, f"{path}.positions") or ""
        for i, block in enumerate(self.blocks):
            if layers is None or i in layers:
                assert isinstance(block, Block)
                reads = None if memory is None else (memory, BiasSteps(f"{path}.cross", "encoder"))
                x = block.steps(to, f"{path}.blocks.{i}", x, self.attn_bias_steps(path, i, states), memory=reads)
        return x if self.final_norm is None else self.final_norm.steps(to, f"{path}.final_norm", x)

    def masks(self, path: str) -> dict[str, Mask]:
        """The masks of the attentions of the stack at `path`, by the names that its ops use."""
        masks = {f"{path}.attn": Mask(causal=self.causal)}
        if self.config.window is not None:
            masks[f"{path}.attn.window"] = Mask(causal=self.causal, window=self.config.window)
        return masks | ({f"{path}.cross": Mask()} if self.cross else {})

    def attn_bias_steps(self, path: str, layer: int, states: str) -> BiasSteps:
        """The steps of `attn_bias` in a layer."""
        kind, numbers = self.kinds[layer], f"{path}.positions"
        mask = f"{path}.attn.window" if kind.windowed else f"{path}.attn"
        encoding = self.encoding(kind)
        at = f"{path}.positions" if encoding is self.positions else f"{path}.window_positions"
        return BiasSteps(mask, path, encoding, at, numbers, states)

    def encoding(self, kind: LayerKind) -> PositionEncoding | None:
        """The positions of the layers of a kind; None if they have none."""
        if not kind.rotary:
            return None
        return self.window_positions if kind.windowed and self.window_positions else self.positions

    def attn_bias(self, queries: Layout, keys: Layout, *, kind: LayerKind, dtype: torch.dtype) -> AttentionBias:
        """The attention bias of the layers of a kind."""
        attn = next((block.attn for block in self.blocks if isinstance(block.attn, Attention)), None)
        window, encoding = self.config.window if kind.windowed else None, self.encoding(kind)
        if isinstance(self.config.input, GridInput):
            queries, window = in_windows(queries, window) if window else queries, None
            keys = queries
            if not (tracing() or self.causal):
                rotation = encoding.rotation(queries.positions) if encoding else None
                return AttentionBias(rotation=rotation, documents=queries.by_document())
        return AttentionBias.between(
            queries,
            keys,
            causal=self.causal,
            window=window,
            positions=encoding,
            dtype=dtype,
            fused=attn is None or not attn.is_explicit(queries.grid[1], keys.grid[1], dtype, keys.positions.device),
        )

    def check_length(self, keys: Layout, *, counted: bool) -> None:
        """Raises UserError for a position without a vector. With `counted`, each cell of the grid is one position."""
        limit = self.config.max_length
        if limit is None or keys.grid[1] <= limit:
            return
        # Padding on the left and several documents in a row make the grid longer than any position is.
        length = keys.grid[1] if counted else int(keys.positions.max()) + 1
        if length > limit:
            raise UserError(
                f"length {length}: this model's positions end at {limit}; cut the text or use a longer model"
            )


def in_windows(layout: Layout, side: int) -> Layout:
    """The layout of patches with a document for each square of this side, within the documents that it has."""
    _, row, column = axes_of(layout.positions)
    squares = in_picture(row // side, column // side)
    return replace(layout, documents=squares if layout.documents is None else squares + layout.documents)


def running(marks: Tensor) -> Tensor:
    """b t, bool -> b t: the number of each mark among all; -1 for other cells."""
    return torch.where(marks, (marks.flatten().cumsum(0) - 1).view_as(marks), -1)


def squares_of(cells: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """n 2 -> m each: the picture, the row and the column of each vector of pictures with so many rows and columns."""
    each = cells.prod(1)
    picture = torch.arange(len(cells), device=cells.device).repeat_interleave(each)
    square = torch.arange(len(picture), device=cells.device) - (each.cumsum(0) - each)[picture]
    return picture, square // cells[picture, 1], square % cells[picture, 1]


def around_pictures(tokens: Tokens, marks: Tensor, cells: Tensor) -> Tensor:
    """b t: the place of each token; the marks of a picture have that of its first one.

    The text goes on after as many places as the picture's longer side has vectors   (Wang et al. 2024, 2.1)
    """
    steps = torch.zeros_like(tokens.ids, dtype=torch.int64) + (1 if tokens.valid is None else tokens.valid)
    ends = cells.prod(1).cumsum(0) - 1
    steps[marks] = torch.zeros_like(steps[marks]).index_copy(0, ends, cells.amax(1))
    return steps.cumsum(1) - steps


class Pictures(Part):
    """projector(tower(pixels)): the vectors that stand for pictures in a text   (Liu et al. 2023, 4.1)"""

    def __init__(self, config: PictureInput, d_model: int) -> None:
        super().__init__()
        self.config = config
        self.tower = Stack(config.tower, causal=False, cross=False)
        self.projector = Projector(config, d_model)

    def forward(self, tokens: Tokens) -> Tokens:
        """The tokens with the vectors of their pictures. Raises UserError unless there is a mark for each vector."""
        assert tokens.pictures is not None
        if self.config.any_size:
            return self.of_any_size(tokens)
        marks, each = tokens.ids == self.config.mark_id, self.config.n_marks
        if int(marks.sum()) != each * len(tokens.pictures):
            expected = f"{each} x {len(tokens.pictures)} marks, tokens {self.config.mark_id}, for as many pictures"
            raise UserError(f"pictures: expected {expected}, got {int(marks.sum())}; repeat the mark of each picture")
        states, _ = self.tower(Tokens(tokens.pictures))
        vectors = self.projector(states).flatten(0, 1)
        places = running(marks)
        groups = tokens.groups
        if groups is None and self.config.sees == "picture":
            groups = torch.where(marks, places // each + 1, 0)
        elif groups is None and self.config.sees == "prompt":
            groups = torch.ones_like(places) if tokens.valid is None else tokens.valid.long()
        return replace(tokens, pictures=None, vectors=vectors, places=places, groups=groups)

    def of_any_size(self, tokens: Tokens) -> Tokens:
        """The same for pictures of any size, whose patches are one row for the tower, with a document a picture."""
        cells, marks = self.cells(tokens), tokens.ids == self.config.mark_id
        picture, row, column = squares_of(cells)
        vectors = self.projector(self.states(tokens, picture, row, column))[0]
        at = around_pictures(tokens, marks, cells)
        at[marks] += in_picture(row, column)
        return replace(tokens, pictures=None, vectors=vectors, places=running(marks), positions=at)

    def cells(self, tokens: Tokens) -> Tensor:
        """n 2: the rows and columns of the pictures' vectors. Raises UserError unless marks and patches fit them."""
        patches, grids, side = tokens.pictures, tokens.grids, self.config.projector.join
        if patches is None or grids is None or grids.ndim != 2 or ((grids < 1) | (grids % side != 0)).any():
            raise UserError(f"pictures: expected tokens.grids, rows and columns of patches in multiples of {side}")
        n, got = int(grids.prod(1).sum()), int((tokens.ids == self.config.mark_id).sum())
        shape, given = (n, *self.config.reads.shape[1:]), tuple(patches.shape)
        if not n or (got * side**2, given) != (n, shape):
            expected = f"{n // side**2} marks, tokens {self.config.mark_id}, and patches of shape {shape}"
            raise UserError(f"pictures: expected {expected}, got {got} and {given}; repeat the mark of each one")
        return grids.long() // side

    def states(self, tokens: Tokens, picture: Tensor, row: Tensor, column: Tensor) -> Tensor:
        """1 p d: the tower's states of the patches, one square of them after the other."""
        patches, side = tokens.pictures, self.config.projector.join
        assert patches is not None
        inside = torch.arange(side, device=row.device)
        rows, columns = (x[:, None, None] * side for x in (row, column))
        at = in_picture(rows + inside[:, None], columns + inside).flatten()[None]
        return self.tower(Tokens(patches[None], positions=at, documents=picture.repeat_interleave(side**2)[None]))[0]

    def steps(self, to: Steps, path: str) -> str:
        """Lists the ops for one picture; returns the address of its vectors."""
        return self.projector.steps(to, f"{path}.projector", self.tower.steps(to, f"{path}.tower"))


class Transformer(Part, HasAttached):
    """An encoder, a decoder or both, and a head   (Vaswani et al. 2017, figure 1)

    `network(source, target)` for an encoder-decoder, `network(tokens)` for a single stack. Logits are b t v, or n v in
    the order of the valid cells when the last stack's tokens are packed.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Stack(config.encoder, causal=False, cross=False) if config.encoder else None
        self.decoder = Stack(config.decoder, causal=True, cross=config.encoder is not None) if config.decoder else None
        pictures, text = config.pictures, config.decoder
        self.pictures = Pictures(pictures, text.d_model) if pictures and text else None
        self.head = heads.build_head(config)
        self.tie()
        initialize(self, config.init)

    def tie(self) -> None:
        """Makes tied tables, and the weights of blocks that run several times, one tensor again, as the config says."""
        for stack in self.stacks().values():
            stack.tie()
        if self.config.share_embeddings and self.encoder and self.decoder:
            self.decoder.table.weight = self.encoder.table.weight
        if isinstance(self.config.head, LanguageHead) and self.config.head.tied:
            assert isinstance(self.head, heads.LanguageHead)
            self.head.output.weight = self.last_stack.table.weight

    def stacks(self) -> dict[str, Stack]:
        """The stacks of the network by name, in the order in which they run."""
        return {name: stack for name, stack in (("encoder", self.encoder), ("decoder", self.decoder)) if stack}

    def every_stack(self) -> dict[str, Stack]:
        """The stacks by their paths, that of pictures within the text first."""
        return {**({"pictures.tower": self.pictures.tower} if self.pictures else {}), **self.stacks()}

    @property
    def last_stack(self) -> Stack:
        """The stack whose states the head reads."""
        stack = self.decoder or self.encoder
        assert stack is not None
        return stack

    def forward(self, *inputs: Tokens | Tensor, labels: Tensor | None = None, smoothing: float = 0.0) -> Tensor:
        """One input for each stack, the encoder's first -> logits, or with `labels` the head's summed loss in nats."""
        with counted_load() if labels is not None and self.balances else nullcontext() as load:
            head, reads = self.head, None
            if self.training and isinstance(head, heads.OutputHead):
                reads = partial(head.reads, labels=labels)
            states, layout = self.states(*inputs, reads=reads)
        if labels is None:
            return self.head(states, layout)
        assert isinstance(self.head, heads.OutputHead)
        loss = self.head.loss(states, layout, labels, smoothing=smoothing)
        return loss if load is None else loss + load.loss() * (labels != IGNORED).sum()

    @property
    def balances(self) -> bool:
        """True if the loss includes that of unevenly chosen experts: in training, under a language head."""
        experts = [stack.experts.balance for stack in self.config.stacks.values() if stack.experts]
        return self.training and any(experts) and isinstance(self.head, heads.LanguageHead)

    def steps(self, to: Steps, layers: Collection[int] | None = None) -> None:
        """Lists the ops of `forward`, from ids or pixels to logits, of these layers or all."""
        if self.pictures is not None and to.pictures:
            self.pictures.steps(to, "pictures")
        states = None
        for name, stack in self.stacks().items():
            states = stack.steps(to, name, states, layers)
            to.states.append(states)
        assert states is not None
        assert isinstance(self.head, heads.OutputHead | heads.VectorHead | heads.NoHead)
        self.head.steps(to, "head", states)

    def states(self, *inputs: Tokens | Tensor, reads: Reads | None = None) -> Memory:
        """The last states and their layout. With `reads`, the last block may compute only those that it marks."""
        tokens = [Tokens(x) if isinstance(x, Tensor) else x for x in inputs]
        for x in tokens:
            if not isinstance(x, Tokens):
                raise UserError(f"input: expected Tokens or a tensor of ids, got {type(x).__name__}; try Tokens.pad")
        n_stacks = (self.encoder is not None) + (self.decoder is not None)
        if len(tokens) != n_stacks:
            raise UserError(f"this network has {n_stacks} stack(s) and takes as many inputs, got {len(tokens)}")
        memory = self.encoder(tokens[0], reads=None if self.decoder else reads) if self.encoder else None
        if self.decoder is None:
            assert memory is not None
            return memory
        return self.decoder(self.see(tokens[-1]), memory, reads=reads)

    def see(self, tokens: Tokens) -> Tokens:
        """The tokens with the vectors of their pictures in place of the pixels; the tokens themselves without any."""
        if tokens.pictures is None:
            return tokens
        if self.pictures is None:
            raise UserError("pictures: expected none, as this network reads text alone, got some; leave them out")
        return self.pictures(tokens)

    def encode(self, source: Tokens) -> Memory:
        """The encoder's states, which a decoder attends to."""
        assert self.encoder is not None
        return self.encoder(source)

    def decode(self, target: Tokens, memory: Memory | None, cache: Cache) -> Tensor:
        """Logits of new target tokens, b t v, after those in the cache, and adds them to the cache."""
        assert self.decoder is not None
        return self.head(*self.decoder(self.see(target), memory, cache))

    @property
    def keeps_states(self) -> bool:
        """True if layers of the decoder may keep a state, in place of keys and values or beside them."""
        return self.config.decoder is not None and self.config.decoder.mixer is not None

    def new_cache(self) -> Cache:
        """An empty cache for `decode`."""
        assert self.decoder is not None
        return GrowingCache.empty(len(self.decoder.blocks))
