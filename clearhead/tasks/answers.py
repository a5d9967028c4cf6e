"""What a classifier says of texts: its logits, their losses, and its labels as text."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.config import ClassificationHead, ModelConfig
from clearhead.config.heads import ProblemType
from clearhead.data.batches import token_budget_batches
from clearhead.data.labelled_ids import Inputs
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import UserError
from clearhead.json_text import JsonObject
from clearhead.model import Tokens, Transformer
from clearhead.model.heads import scores
from clearhead.model.mode import Evaluating
from clearhead.progress import counted
from clearhead.tasks.task import Prediction

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


def batch_of(inputs: Inputs, examples: Sequence[int], tokenizer: Tokenizer, *, packed: bool) -> Tokens:
    """These inputs as one batch."""
    tokens = Tokens.pad([inputs.ids[i] for i in examples], fill=tokenizer.pad_id or 0, packed=packed)
    return (
        tokens if inputs.types is None else replace(tokens, types=Tokens.pad([inputs.types[i] for i in examples]).ids)
    )


def logits_of(network: Transformer, inputs: Inputs, tokenizer: Tokenizer, *, start: int | None = None) -> Tensor:
    """n v: the logits of every input, on the CPU.

    The decoder of an encoder-decoder reads each input again, after the token `start` and without its last token.
    """
    lengths = [*map(len, inputs.ids)]
    found = torch.empty(len(lengths), head_of(network.config).n_labels)
    budget, device = max([BATCH_TOKENS, *lengths]), next(network.parameters()).device
    with Evaluating(network), torch.inference_mode():
        for examples in counted(token_budget_batches(lengths, max_tokens=budget, seed=0, epoch=0), "reading"):
            stacks = [batch_of(inputs, examples, tokenizer, packed=True)]
            if start is not None:
                again = [[start, *inputs.ids[i][:-1]] for i in examples]
                stacks.append(Tokens.pad(again, fill=tokenizer.pad_id or 0, packed=True))
            found[examples] = network(*(tokens.to(device) for tokens in stacks)).float().cpu()
    return found


def head_of(config: ModelConfig) -> ClassificationHead:
    """The classification head. Raises UserError for any other."""
    if not isinstance(config.head, ClassificationHead):
        raise UserError(f"model: expected a classification head, got {config.head.kind}; try clearhead train first")
    return config.head


def names_in(head: ClassificationHead) -> tuple[str, ...]:
    """The names of a head's labels."""
    return head.labels or tuple(f"LABEL_{i}" for i in range(head.n_labels))


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
    return Prediction("\t".join(f"{number:.4g}" for number in row), {"values": [*row]})


def labelled(row: Mapping[str, float], *, several: bool) -> Prediction:
    """Labels with their scores as a prediction: the likeliest label, or all that are more likely than not."""
    ordered = sorted(row, key=lambda name: -row[name])
    best = [name for name in ordered if row[name] > 0.5] if several else ordered[:1]
    said: JsonObject = {"labels": [*best]} if several else {"label": best[0]}
    shares: JsonObject = {name: row[name] for name in ordered}
    return Prediction("\t".join(f"{name}\t{row[name]:.4f}" for name in best), {**said, "probabilities": shares})
