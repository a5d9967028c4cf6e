"""The answers of a classifier: logits of texts, their losses, and predicted labels as text."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.config import ClassificationHead, ModelConfig
from clearhead.config.heads import ProblemType
from clearhead.data.batches import token_budget_batches
from clearhead.data.labelled_ids import NO_LIMIT, Inputs, until_padding
from clearhead.data.sequences import largest_of
from clearhead.errors import UserError
from clearhead.json_text import JsonObject, tabbed
from clearhead.model import Tokens, Transformer
from clearhead.model.heads import scores
from clearhead.model.mode import Evaluating
from clearhead.progress import counted
from clearhead.tasks.checks import check_vocabulary
from clearhead.tasks.task import Prediction, Trained
from clearhead.text.special_tokens import start_again
from clearhead.text.tokenizers import Tokenizer

BATCH_TOKENS = 8192
"""Tokens of one batch outside of training."""


def losses(logits: Tensor, targets: Tensor, problem_type: ProblemType, *, smoothing: float = 0.0) -> Tensor:
    """The loss of each row, n: in nats, or squared."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    match problem_type:
        case "single_label_classification":
            return F.cross_entropy(logits, targets, reduction="none", label_smoothing=smoothing)
        case "multi_label_classification":
            return F.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype), reduction="none").mean(-1)
        case "regression":
            return F.mse_loss(logits, targets.to(logits.dtype), reduction="none").mean(-1)


def batch_of(
    inputs: Inputs, examples: Sequence[int], tokenizer: Tokenizer, *, packed: bool, start: int | None = None
) -> tuple[Tokens, ...]:
    """These inputs as one batch.

    The decoder of an encoder-decoder reads each input again, after the token `start` and without its last token.
    """
    rows, fill = [inputs.ids[i] for i in examples], tokenizer.pad_id or 0
    tokens = Tokens.pad(rows, fill=fill, packed=packed)
    if inputs.types is not None:
        tokens = replace(tokens, types=Tokens.pad([inputs.types[i] for i in examples]).ids)
    if start is None:
        return (tokens,)
    return tokens, Tokens.pad([[start, *ids[:-1]] for ids in rows], fill=fill, packed=packed)


def logits_of(network: Transformer, inputs: Inputs, tokenizer: Tokenizer, *, start: int | None = None) -> Tensor:
    """n v: the logits of every input, on the CPU; `start` as for `batch_of`."""
    lengths = [*map(len, inputs.ids)]
    found = torch.empty(len(lengths), head_of(network.config).n_labels)
    budget, device = max([BATCH_TOKENS, *lengths]), next(network.parameters()).device
    with Evaluating(network), torch.inference_mode():
        for examples in counted(token_budget_batches(lengths, max_tokens=budget, seed=0, epoch=0), "reading"):
            stacks = batch_of(inputs, examples, tokenizer, packed=True, start=start)
            found[examples] = network(*(tokens.to(device) for tokens in stacks)).float().cpu()
    return found


def rereads(model: Trained) -> bool:
    """Whether a decoder reads each text again after an encoder."""
    return len(model.network.config.stacks) == 2


def reader_of(model: Trained) -> Tokenizer:
    """The tokenizer of a model. Where a decoder reads texts again, it puts an end token after each."""
    return model.tokenizer.ending() if rereads(model) else model.tokenizer


def start_of(model: Trained, inputs: Inputs) -> int | None:
    """The token with which the decoder of an encoder-decoder begins to read the inputs again; None without one."""
    return start_again(model.tokenizer, model.generation, inputs.ids) if rereads(model) else None


def most_tokens(model: Trained, otherwise: int) -> int:
    """The longest text that is read at once: as in training, and no more than every stack has positions for."""
    limits = [model.contract.max_length, *(stack.max_length for stack in model.network.config.stacks.values())]
    return min((limit for limit in limits if limit is not None), default=otherwise)


def read(model: Trained, texts: Sequence[tuple[str, ...]]) -> Inputs:
    """What a classifier reads of single texts or of pairs, as in training."""
    return Inputs.of(texts, reader_of(model), most_tokens(model, NO_LIMIT))


def read_logits(model: Trained, texts: Sequence[tuple[str, ...]]) -> Tensor:
    """n v: the logits of single texts and of pairs.

    Raises UserError for tokens that the network does not have.
    """
    config, reader = model.network.config, reader_of(model)
    found = torch.empty(len(texts), head_of(config).n_labels)
    for size in {len(row) for row in texts}:
        alike = [i for i, row in enumerate(texts) if len(row) == size]
        inputs = read(model, [texts[i] for i in alike])
        ids = [until_padding(row, config, model.generation.pad_id) for row in inputs.ids]
        check_vocabulary(next(iter(config.stacks)), config.first, largest_of(ids))
        found[alike] = logits_of(model.network, replace(inputs, ids=ids), reader, start=start_of(model, inputs))
    return found


def head_of(config: ModelConfig) -> ClassificationHead:
    """The classification head. Raises UserError for any other."""
    if not isinstance(config.head, ClassificationHead):
        raise UserError(f"model: expected a classification head, got {config.head.kind}; try clearhead train first")
    return config.head


def names_in(head: ClassificationHead) -> tuple[str, ...]:
    """The names of a head's labels."""
    return told_apart(head.labels) or tuple(f"LABEL_{i}" for i in range(head.n_labels))


def told_apart(names: Sequence[str]) -> tuple[str, ...]:
    """The names of classes; of several with one name, each gets its number, so that none hides another."""
    return tuple(name if names.count(name) == 1 else f"{name} ({i})" for i, name in enumerate(names))


def said(config: ModelConfig, logits: Tensor) -> list[Prediction]:
    """What the network says of each row: its labels with their probabilities, with tabs between them, or a number."""
    head = head_of(config)
    names = names_in(head)
    rows: list[list[float]] = scores(head, logits).tolist()
    if head.problem_type == "regression":
        return [_numbers(row) for row in rows]
    several = head.problem_type == "multi_label_classification"
    return [labelled(dict(zip(names, row, strict=True)), several=several) for row in rows]


def _numbers(row: Sequence[float]) -> Prediction:
    return Prediction(tabbed(*(f"{number:.4g}" for number in row)), {"values": [*row]})


def labelled(row: Mapping[str, float], *, several: bool) -> Prediction:
    """Labels with their scores as a prediction: the likeliest label, or all that are more likely than not."""
    ordered = sorted(row, key=lambda name: -row[name])
    best = [name for name in ordered if row[name] > 0.5] if several else ordered[:1]
    said: JsonObject = {"labels": [*best]} if several else {"label": best[0]}
    shares: JsonObject = {name: row[name] for name in ordered}
    cells = (cell for name in best for cell in (name, f"{row[name]:.4f}"))
    return Prediction(tabbed(*cells), {**said, "probabilities": shares})
