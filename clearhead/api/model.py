"""What a user holds: `Model`, a network with its tokenizer, and how it generates by default."""

import itertools
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from pydantic import JsonValue
from torch import Tensor

from clearhead.api import pretrained
from clearhead.api.card import card
from clearhead.api.embedding import SentenceReader
from clearhead.api.folders import own_files
from clearhead.api.reader import Input, Reader
from clearhead.api.sentences import Sentences
from clearhead.api.sidecars import PREPROCESSOR
from clearhead.api.variants import changed, over_the_same_weights
from clearhead.config import ClassificationHead, ModelConfig
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import UserError
from clearhead.generation import Hypothesis, Step, complete, generate
from clearhead.generation.pieces import first, pieces
from clearhead.model import Tokens, Transformer
from clearhead.model.heads import scores
from clearhead.model.int8 import refuse_int8
from clearhead.model.mode import Evaluating
from clearhead.model.summary import Summary, summarize
from clearhead.recipe.generation import GenerationConfig
from clearhead.trace import Edit, Trace, trace
from clearhead.training import checkpoints
from clearhead.training.checkpoints import Files

if TYPE_CHECKING:
    from clearhead.data.images import ImageProcessor
    from clearhead.data.pictures import Picture

_log = logging.getLogger("clearhead")

SHARD_BYTES = 5_000_000_000
"""The largest file of weights that `save` writes."""


class Model:
    """A network, what turns text or images into its input, and how it generates by default."""

    def __init__(
        self,
        network: Transformer,
        tokenizer: Tokenizer | None = None,
        generation: GenerationConfig | None = None,
        *,
        images: "ImageProcessor | None" = None,
        sentences: Sentences | None = None,
        family: str | None = None,
        about: Mapping[str, JsonValue] | None = None,
    ) -> None:
        """`sentences` is how `embed` makes one vector of a text; `family` the architecture to save as, where there is
        a choice; `about` what a model card should say of its training.
        """
        self.network, self.reader = network, Reader(network.config, tokenizer, images)
        self.generation = generation or GenerationConfig()
        self.sentences, self.family, self.about = sentences or Sentences(), family, dict(about or {})

    def __repr__(self) -> str:
        """What it is, in a line."""
        stacks = {"encoder": self.config.encoder, "decoder": self.config.decoder}
        sizes = [f"{name} of {s.n_layers} x {s.d_model}" for name, s in stacks.items() if s is not None]
        return f"Model({', '.join([*sizes, f'{self.config.head.kind} head'])})"

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer; UserError where the model came without one."""
        return self.reader.words

    @property
    def has_tokenizer(self) -> bool:
        """Whether it came with a tokenizer."""
        return self.reader.tokenizer is not None

    @property
    def config(self) -> ModelConfig:
        """The architecture."""
        return self.network.config

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.network.parameters()).device

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether it reads one text and writes another."""
        return self.network.encoder is not None and self.network.decoder is not None

    # --- what it says ---

    def logits(self, text: Input, target: str | None = None) -> Tensor:
        """Logits for one input: t v, or v where the head says one thing of the whole.

        An encoder-decoder takes the source and the target, of whose positions (the start token first) the logits
        are; an encoder takes a second text as its tokenizer joins two, such as a question and a passage.
        """
        with Evaluating(self.network), torch.inference_mode():
            return self.network(*self._inputs(text, target))[0]

    def classify(self, texts: Sequence[Input]) -> list[list[tuple[str, float]]]:
        """For each text or image its labels with their numbers, largest first: probabilities that sum to 1, one for
        each label alone, or those of a regression, as `problem_type` says.
        """
        head = self.config.head
        if not isinstance(head, ClassificationHead):
            raise UserError(f"classify: expected a classification head, got {head.kind}; try load(…, head=…)")
        names = head.labels or tuple(f"LABEL_{i}" for i in range(head.n_labels))
        shares = [scores(head, self.logits(text).float()).tolist() for text in _several(texts, "classify")]
        return [sorted(zip(names, row, strict=True), key=lambda pair: -pair[1]) for row in shares]

    def translate(self, texts: Sequence[str], config: GenerationConfig | None = None) -> list[str]:
        """The best translation of each text."""
        return [self.tokenizer.decode(best[0].tokens) for best in self.hypotheses(texts, config)]

    def hypotheses(self, texts: Sequence[str], config: GenerationConfig | None = None) -> list[list[Hypothesis]]:
        """For each source text its n_best translations with their scores, best first."""
        if not self.is_encoder_decoder:
            raise UserError(f"translate: expected an encoder-decoder, got one stack; {self._use()}")
        return complete(
            self.network,
            source=self.reader.ids(_several(texts, "translate")),
            config=config or self.generation,
            bos_id=self.tokenizer.bos_id,
            eos_id=self.tokenizer.eos_id,
            pad_id=self.tokenizer.pad_id or 0,
        )

    def generate(self, prompt: str = "", config: GenerationConfig | None = None, *, stop: Sequence[str] = ()) -> str:
        """The prompt's continuation, up to the first of the stop strings."""
        return "".join(self.stream(prompt, config, stop=stop))

    def chat(
        self,
        messages: Sequence[Mapping[str, JsonValue]],
        config: GenerationConfig | None = None,
        *,
        stop: Sequence[str] = (),
    ) -> Iterator[str]:
        """The answer to a conversation of {"role": …, "content": …}, piece by piece, by the model's own template."""
        from clearhead.data.chat import render

        template = self.tokenizer.chat_template
        if template is None:
            raise UserError("chat: expected a chat template with the tokenizer, got none; try generate")
        text = render(template, messages, add_generation_prompt=True, special=self.tokenizer.special_tokens)
        return self._continue(self.reader.known(self.tokenizer.encode(text)), config, stop)

    def stream(
        self, prompt: str = "", config: GenerationConfig | None = None, *, stop: Sequence[str] = ()
    ) -> Iterator[str]:
        """The continuation piece by piece, as it is written, up to the first of the stop strings.

        One hypothesis, greedy or sampled, whatever `config` says of beams. Raises UserError at the call, before
        anything is written, for a model that does not continue texts and for a prompt that is too long.
        """
        if not isinstance(prompt, str):
            raise UserError(f"generate: expected one text, got {type(prompt).__name__}; call it for each")
        return self._continue(self.reader.ids([prompt])[0] or [self.tokenizer.need("bos")], config, stop)

    def _continue(self, ids: list[int], config: GenerationConfig | None, stop: Sequence[str]) -> Iterator[str]:
        if self.network.decoder is None or self.network.encoder is not None:
            raise UserError(f"generate: expected a decoder-only model, got one with an encoder; {self._use()}")
        if "" in stop:
            raise UserError("stop: expected strings that are not empty, got an empty one; leave it out")
        config = config or self.generation
        eos = self.tokenizer.eos_id
        ending = set(config.end_ids) or {eos}

        def text(tokens: list[int]) -> str:
            # After the prompt: some tokenizers drop the space before the first word of a text.
            return self.tokenizer.decode([*ids, *tokens])[len(self.tokenizer.decode(ids)) :]

        def ends(tokens: list[int]) -> bool:
            return bool(stop) and first(text(tokens), stop) is not None

        events = generate(
            self.network,
            Tokens(torch.tensor([ids], device=self.device)),
            config=config.model_copy(update={"beams": 1, "n_best": 1}),
            stop=ends,
            eos_id=eos,
            pad_id=self.tokenizer.pad_id or 0,
        )
        steps = (int(event.tokens[0, 0]) for event in events if isinstance(event, Step))
        tokens = itertools.takewhile(lambda token: token not in ending, steps)
        written = itertools.accumulate(tokens, lambda before, token: [*before, token], initial=list[int]())
        return pieces(map(text, written), stop)

    def embed(
        self, texts: Sequence[Input], *, unit: bool = True, prompt: str | None = None, prompt_name: str | None = None
    ) -> Tensor:
        """One vector a text or image, b d: the first stack's last states over the real positions, pooled.

        A model of sentences puts its prompt, or another, first and cuts long texts. Of length 1 unless `unit` is false.
        """
        stack = self.network.encoder or self.network.decoder
        assert stack is not None
        reads = SentenceReader(self.reader, self.sentences, self.sentences.prompt(prompt, prompt_name))
        inputs = self.reader.padded(_several(texts, "embed"), reads.ids, pad_id=self.generation.pad_id)
        with Evaluating(self.network), torch.inference_mode():
            found = reads.vectors(stack, self._here(inputs))
        return torch.nn.functional.normalize(found, dim=-1) if unit else found

    # --- looking inside ---

    def summary(self) -> Summary:
        """Parameters, shapes, FLOPs and bytes by component."""
        return summarize(self.config)

    def trace(
        self, text: Input, target: str | None = None, *, edit: Mapping[str, Edit] | None = None
    ) -> tuple[Trace, Tensor]:
        """Every value on the way to the logits of one input, and those logits; `edit` changes values on the way."""
        with Evaluating(self.network), torch.no_grad(), trace(self.network, edit) as seen:
            logits = self.network(*self._inputs(text, target))
        return seen, logits[0]

    def changed(self, *, scale: bool = True, positions: str | None = None) -> "Model":
        """The same weights without the scale of the scores, or with positions of another kind in every stack.

        It was not trained that way: this is for seeing what breaks. `positions` is a kind that has nothing to learn
        (`clearhead.config.positions.WITHOUT_WEIGHTS`); the weights are shared, not copied. Raises UserError where the
        network cannot have it.
        """
        refuse_int8(self.network, "changed")
        network = over_the_same_weights(self.network, changed(self.config, scale=scale, positions=positions))
        tokenizer = self.reader.tokenizer
        images = self.reader.images
        return Model(network, tokenizer, self.generation, images=images, sentences=self.sentences, family=self.family)

    def tracing(
        self, edit: Mapping[str, Edit] | None = None, *, without: Collection[str] = ()
    ) -> AbstractContextManager[Trace]:
        """A trace around whatever runs inside, such as a whole translation; as `clearhead.trace.trace`."""
        return trace(self.network, edit, without=without)

    def explore(self, text: str | None = None, target: str | None = None, *, image: "Picture | None" = None) -> Any:
        """A page in which every value of a forward pass is seen, explained and edited, beginning with this input.

        In a notebook a widget, where it is the last line of a cell; elsewhere a page of the browser, and an object
        with its `url`, `wait` and `close`. Needs the `notebook` extra in a notebook, else raises UserError.
        """
        from clearhead.explorer.hosting.widget import explore

        return explore(self, text, target, image)

    # --- in and out ---

    def save(self, folder: str | Path, *, shard_bytes: int = SHARD_BYTES) -> Path:
        """Write a new folder that `load` opens, and other libraries where they have this architecture.

        Weights and config under the names of the Hugging Face libraries, the tokenizer, the settings of generation
        and a model card. An architecture that they do not have is kept in our own form, with a warning.
        """
        refuse_int8(self.network, "save")
        folder = Path(folder)
        exported = pretrained.export(self.network, self.settings(), prefer=self.family, shard_bytes=shard_bytes)
        if exported is None:
            _log.warning("%s: no other library has this architecture; saved for clearhead alone", folder)
        files = own_files(self.network, self.settings()) if exported is None else exported.files
        architecture = None if exported is None else exported.architecture
        beside = Files() if exported is None else self.sentences.files()
        text = card(
            self.config, folder.name, architecture=architecture, about=self.about, has_tokenizer=self.has_tokenizer
        )
        raw = {"README.md": text.encode()}
        if self.has_tokenizer:
            raw |= self.tokenizer_files()
        json = {PREPROCESSOR: self.reader.images.config.to_document()} if self.reader.images else {}
        both = Files({**files.tensors, **beside.tensors}, {**files.json, **json, **beside.json}, {**raw, **beside.raw})
        return checkpoints.write_folder(folder, both)

    def _inputs(self, text: Input, other: str | None) -> list[Tokens]:
        return [self._here(tokens) for tokens in self.reader.inputs(text, other, self.generation)]

    def _here(self, tokens: Tokens) -> Tokens:
        """On the network's device; pixels in its type."""
        pixels = tokens.ids.is_floating_point()
        ids = tokens.ids.to(next(self.network.parameters()).dtype) if pixels else tokens.ids
        return replace(tokens, ids=ids).to(self.device)

    def tokenizer_files(self) -> dict[str, bytes]:
        """The tokenizer as other libraries read it: that of an encoder-decoder ends a text by itself."""
        return (self.tokenizer.ending() if self.is_encoder_decoder else self.tokenizer).to_files()

    def settings(self) -> GenerationConfig:
        """How it generates, with its tokenizer's special tokens by number, as other libraries need them."""
        if not self.has_tokenizer:
            return self.generation
        ids = self.tokenizer
        return self.generation.with_ids(start_id=ids.bos_id, end_id=ids.eos_id, pad_id=ids.pad_id)

    def _use(self) -> str:
        if self.network.decoder is None:
            return "try embed or logits"
        return "try translate" if self.is_encoder_decoder else "try generate"


T = TypeVar("T")


def _several(texts: Sequence[T], what: str) -> Sequence[T]:
    """The inputs; a lone string, which is a sequence of its characters, is surely a mistake."""
    if isinstance(texts, str):
        raise UserError(f"{what}: expected a list of texts, got one text; try {what}([text])")
    return texts
