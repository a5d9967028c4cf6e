"""Circuits of a model, and the answer that they explain."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from clearhead.analysis.circuits import Circuits, LogitDifference, Metric, VectorShift
from clearhead.analysis.circuits.circuits import Baseline
from clearhead.analysis.features import Features
from clearhead.analysis.metrics import at
from clearhead.api.base import ModelBase
from clearhead.checkpoints.weights.documents import shown
from clearhead.errors import UserError
from clearhead.model import Tokens


@dataclass(frozen=True)
class Explained:
    """The number that a circuit explains. For a model without logits: <vector, direction from corrupt to clean>."""

    answer: int | None
    minus: int | None
    position: int | None
    """The position in the last stack; None if the head pools."""


def circuits_of(
    model: ModelBase,
    clean: Sequence[Tokens],
    corrupt: Baseline,
    *,
    answer: int | None = None,
    minus: int | None = None,
    position: int | None = None,
    features: Sequence[Features] = (),
) -> tuple[Circuits, Explained]:
    """The circuits of logit[answer] - logit[minus] at a position, by default the last.

    `answer` is by default the likeliest on the clean input. `minus` is the likeliest on the corrupt one, or the next
    likeliest on the clean one if that is the answer. A model that ends in its states has the shift of its sentence
    vector instead. `features` are parts of the graph, those that matter most to the number by themselves. Raises
    UserError for an answer or position that is not there, and for features that have no place in the graph.
    """
    first = Circuits(model.network, clean, corrupt, LogitDifference(0), features=features)
    if not model.config.has_logits:
        if answer is not None or minus is not None:
            raise UserError("answer: expected none, because this model has no logits; leave --answer and --minus out")
        return first.explaining(_shift(model, first)), Explained(None, None, None)
    own, others = first.results
    if own.ndim == 3:
        length = own.shape[1]
        position = length - 1 if position is None else position % length if -length <= position < length else position
    else:
        position = None
    mine, theirs = (at(logits, first.layout, position)[0] for logits in (own, others))
    answer, other = likeliest(mine, theirs, answer)
    minus = other if minus is None else minus
    return first.explaining(LogitDifference(answer, minus, position)), Explained(answer, minus, position)


def likeliest(clean: Tensor, corrupt: Tensor, answer: int | None = None) -> tuple[int, int | None]:
    """v, v: the answer, by default the likeliest of the clean logits, and the likeliest other one of the corrupt."""
    answer = int(clean.argmax()) if answer is None else answer
    others = (i for i in corrupt.topk(min(2, len(corrupt))).indices.tolist() if i != answer)
    return answer, next(others, None)


def _shift(model: ModelBase, circuits: Circuits) -> Metric:
    """<vector, unit direction from the corrupt text's vector to the clean one's>."""
    make = model.sentences.vectors
    clean, corrupt = (make(result, circuits.layout) for result in circuits.results)
    return VectorShift(nn.functional.normalize(clean - corrupt, dim=-1), make)


def answer_id(model: ModelBase, text: str, *, name: str) -> int:
    """The id of a token, by its text or as the tools show it (▁nine), or of a label, by its name or number.

    Raises UserError, which begins with `--name`, if no one token or label is meant.
    """
    if model.config.predicts_tokens and model.has_tokenizer:
        return _token(model, text, name)
    labels = list(getattr(model.config.head, "labels", None) or ())
    if text in labels:
        return labels.index(text)
    if text.isdecimal():
        return int(text)
    expected = f"one of {', '.join(labels[:20])}" if labels else "a number"
    raise UserError(f"--{name}: expected {expected}, got {shown(text)}")


def _token(model: ModelBase, text: str, name: str) -> int:
    # Where a token holds no space, a space before the word is no mistake.
    cut = [model.tokenizer.encode(one, target=model.is_encoder_decoder) for one in (text, text.strip())]
    ids = next((one for one in cut if len(one) == 1), None)
    if ids is not None:
        return ids[0]
    vocabulary = model.tokenizer.tokens(range(model.tokenizer.vocab_size))
    if text in vocabulary:
        return vocabulary.index(text)
    pieces = ", ".join(map(repr, model.tokenizer.tokens(cut[0])))
    raise UserError(f"--{name}: expected one token, got {shown(text)}, which is {pieces or 'none'}; give one of them")
