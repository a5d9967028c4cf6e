"""The JSON part of each reply, and what it is made of. `python -m tools.protocol` writes them as TypeScript.

A reply may hold tensors too: the docstrings name them.
"""

from typing import Literal, NotRequired

from typing_extensions import TypedDict  # That of `typing` is too little for pydantic before Python 3.12.

from clearhead.config import ModelConfig, StackName
from clearhead.explorer.answering.questions import RunRequest
from clearhead.explorer.recording.facts import RecomputeCheck, TensorFact, Token
from clearhead.json_text import JsonObject
from clearhead.model.ops import Mask, Op

Words = dict[str, str]
"""Texts of tokens or labels by id."""
Interval = tuple[float, float]
Pair = tuple[int, int]


class Plan(TypedDict):
    """How the values of a network are computed: of its config, or of a changed one."""

    config: ModelConfig
    ops: list[Op]
    masks: dict[str, Mask]


class Checkpoint(TypedDict):
    """One checkpoint of a training run."""

    step: int
    loss: float | None
    score: float | None


class AttachedFeatures(TypedDict):
    """Features that are attached to the model: their address, and the Python arguments that load them."""

    address: str
    writes: str
    n: int
    source: str


class Changes(TypedDict):
    """The changes that the model can take: `positions` lists kinds, its own first."""

    scale: bool
    positions: list[str]


class PlaceAbout(TypedDict):
    """A place of another package: its name in links, and its title in the list."""

    name: str
    title: str


class Sense(TypedDict):
    """What the translations `target` of the word `source` mean, by the page's language."""

    source: str
    target: list[str]
    means: dict[str, str]


class About(TypedDict):
    """The model, and everything else that a page needs to know first."""

    name: str
    kind: Literal["encoder-decoder", "decoder", "encoder", "image"]
    family: str | None
    parameters: int
    dtype: str
    """Of the weights, and so of every number of a pass."""
    limits: dict[StackName, int | None]
    """The largest number of tokens of each stack; null: no limit."""
    has_tokenizer: bool
    labels: list[str] | None
    mask: str | None
    """The mask token of an encoder that predicts masked tokens."""
    step: int | None
    plan: Plan
    history: list[Checkpoint]
    """The run's checkpoints, oldest first."""
    losses: list[tuple[int, float]]
    """At most 400 of the logged training losses, evenly spaced: step and loss."""
    compared: str | None
    """The name of the model that this one is compared with."""
    senses: list[Sense]
    """Of ambiguous words that a translator may read."""
    task: str | None
    """What is known of the model beyond its head: the language that a translator writes, or sort."""
    revision: str | None
    """The revision of the repository `name`, unless it is the main one."""
    corrupt: NotRequired[str]
    """In an exported file: the text against which it holds circuits."""
    fixed: NotRequired[str]
    """In an exported file that reads only the texts it holds: the command that opens the model."""
    start: RunRequest
    """The run that the page opens with."""
    examples: list[RunRequest]
    answers: list[str]
    """The questions that this host answers."""
    languages: list[str]
    """Languages of the page's texts, English first: see `texts`."""
    walks: list[JsonObject]
    """Walks along this model (ui/src/core/walk.ts)."""
    features: list[AttachedFeatures]
    changes: Changes
    places: list[PlaceAbout]
    """The places of other packages."""


class RunReply(TypedDict):
    """A pass at a glance.

    Tensors: for each `….weights` address A with h t s: `A.u8` (uint8) and `A.max` (h t: float32, what 255 stands for);
    of a language head `output.ids`, `output.values` (t k, k <= 20) and `output.lse` (t); of another `output.logits`.
    """

    tokens: dict[StackName, list[Token]]
    facts: dict[str, TensorFact]
    target: str | None
    """The target that the decoder read, if any: `request.target`, or what the model wrote."""
    plan: NotRequired[Plan]
    """Present where the request changes the config."""
    words: Words
    """Texts of the ids in `output.ids`."""
    grid: NotRequired[Pair]
    """Rows and columns of an image's patches; the class token comes first."""
    notes: list[str]
    """Notes for the reader, for example words that have no tokens."""


class ShapesReply(TypedDict):
    """The shape of each tensor of the reply, which is named as it was asked. Closed cells are NaN."""

    shapes: dict[str, list[int]]


class CheckReply(TypedDict):
    """How far every op, evaluated again, is from its recorded value."""

    check: RecomputeCheck


class ScoredPair(TypedDict):
    """One term of an attention score."""

    query: str
    key: str
    value: float


class QKReply(TypedDict):
    """All terms, `rest` of the `left` other pairs and `others` among them, add up to the score."""

    pairs: list[ScoredPair]
    rest: float
    left: int
    others: dict[str, float]
    score: float


class OVReply(TypedDict):
    """What each writer adds to the logit through one cell of attention, and their sum."""

    shares: dict[str, float]
    contribution: float


class PatchingReply(TypedDict):
    """A tensor for each address in `at`: 0 for the corrupt answer, 1 for the clean one, NaN at unaligned positions."""

    alignment: dict[StackName, list[Pair]]
    """The aligned positions of each stack, clean and corrupt."""
    position: Pair
    clean: float
    """The logit of the answer, minus that of the other, in the clean run."""
    corrupt: float
    sites: dict[Literal["resid", "attn", "ffn", "heads"], list[str]]
    """The addresses of the rows of each part, the last block first."""


class Merge(TypedDict):
    """One merge of byte-pair encoding, and the pieces that are left after it."""

    left: str
    right: str
    rank: int
    pieces: list[str]


class TokenizedWord(TypedDict):
    """A word: its pieces before any merge, every merge in order, and its tokens."""

    text: str
    span: Pair
    start: list[str]
    merges: list[Merge]
    tokens: list[Token]


class TokenizeReply(TypedDict):
    """How a text is cut into tokens."""

    words: list[TokenizedWord]
    unknown: list[str]


class EffectsReply(TypedDict):
    """KL(plain || without) in nats, the fall of the logit, or 1 - cosine of the vectors, by address."""

    effects: dict[str, float]


class HeadFacts(TypedDict):
    """What a head does (clearhead/analysis/heads.py)."""

    kind: str
    entropy: float
    relative_entropy: float
    previous: float
    same: float
    next: float
    first: float
    offset: int
    offset_share: float
    distance: float


class StatisticsReply(TypedDict):
    """The facts of each head, by the address of its weights with [h=…].

    For each A in `at` a tensor `A.norms` (h t s): the value-weighted norms ||w v W_O||.
    """

    heads: dict[str, HeadFacts]


class OverviewAnswer(TypedDict):
    """An answer at the position, and its probability."""

    id: int
    word: str
    p: float


class DecidedPart(TypedDict):
    """First states of tokens, which together move more of the answer than each head."""

    at: list[str]
    moved: float
    p: float | None


class DecidedHead(TypedDict):
    """The head that moves the answer most: its index in `at`."""

    head: int
    moved: float
    part: NotRequired[DecidedPart]
    """Where no head moves much of the answer."""
    words: NotRequired[list[DecidedPart]]
    """Then each word or region, those first that move most."""
    instead: NotRequired[OverviewAnswer]
    """The answer that gains most without that part, or without the head."""


class CurveFacts(TypedDict):
    """An attention weight and its effect; p is the probability of the likeliest answer without it."""

    at: str
    weight: float
    moved: float
    p: float | None


class OverviewReply(TypedDict):
    """How much of an answer moves with each edit: 1/2 sum |p - p(edit)|, 0 to 1. NaN: not measured.

    Tensors of heads: `moved` and `p`, n each. Of lanes and ffn: `encoder` and `decoder`, l n.
    """

    position: int
    kind: Literal["word", "class", "vector"]
    """A vector's answer is the text that it is compared with, `p` its cosine, which moves."""
    answers: NotRequired[list[OverviewAnswer]]
    """The likeliest, of heads."""
    at: NotRequired[list[str]]
    """The address of each head, of heads."""
    decided: NotRequired[DecidedHead]
    curves: NotRequired[list[CurveFacts]]
    """The weights of the strongest heads, the strongest first; at least 0.02."""
    stacks: NotRequired[dict[StackName, list[list[int]]]]
    """The tokens of each lane, of lanes and ffn."""


class LensReply(TypedDict):
    """Tensors `ids`, `probabilities` (l t k), `lse` (l t)."""

    addresses: list[str]
    words: Words


class AttributionReply(TypedDict):
    """What each part adds to a logit, or to its difference from another."""

    shares: dict[str, float]
    logit: float


class NeighboursReply(TypedDict):
    """The nearest rows of the token table."""

    ids: list[int]
    cosines: list[float]
    words: Words


class ActiveFeature(TypedDict):
    """A feature, its activation, and the words that it makes likelier."""

    feature: int
    value: float
    words: list[str]


class FeaturesReply(TypedDict):
    """The strongest features of a position, and how many are active there."""

    active: list[ActiveFeature]
    count: int


class DirectionReply(TypedDict):
    """The length of the direction, and the mean length of the run's states at the address."""

    length: float
    states: float
    curve: list[tuple[float, list[float]]]
    """The probability of each answer by strength."""


class TreeNode(TypedDict):
    """A token that was written, whether kept or dropped."""

    parent: int
    id: int
    text: str
    log_prob: float
    score: float
    kept: bool
    final: bool
    step: int


class WritingStep(TypedDict):
    """The likeliest tokens of a step: id and probability over the whole vocabulary."""

    top: list[tuple[int, float]]


class GenerateReply(TypedDict):
    """A continuation as a tree; node 0 is the start."""

    text: str
    nodes: list[TreeNode]
    best: list[int]
    """Node indices of the answer, first token first."""
    steps: list[WritingStep]
    words: Words
    notes: list[str]


class TextsReply(TypedDict):
    """Every text of the page in another language, by key."""

    texts: Words


class ExportReply(TypedDict):
    """A tensor `html` (uint8)."""

    bytes: int
    live: bool
