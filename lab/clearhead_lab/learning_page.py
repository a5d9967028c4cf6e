"""A page in which a small model learns in the reader's browser: `clearhead lab train NAME`.

It holds examples, a record of the network's ops, and of each parameter the mean and the deviation that a new network
has. ui/src/training draws the weights and trains them.
"""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.api import CONFIG, model_json
from clearhead.api.sentences import Sentences
from clearhead.explorer.answering.questions import Reply
from clearhead.explorer.answering.values import plan_of
from clearhead.explorer.export.page import document, packed, sparse
from clearhead.explorer.static_files import catalogues
from clearhead.model import Transformer
from clearhead.model.linear import parameter
from clearhead.model.meta import ops_of
from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.tokenizers import Words
from clearhead.storage.tensors import model_tensors
from clearhead.text.tokenizers import Tokenizer
from clearhead_lab.course.models import PAIRS, UNSEEN, lesson, stack

TEXTS = ("train.", "draw.", "header.", "crumb.")
"""The beginnings of the keys of the texts that the page needs."""
N_UNSEEN = 100
PACE = {"batch": 16, "rate": 0.006, "warmup": 20, "half": 1000}
"""Examples a step, the rate of Adam, the steps in which it rises, and those after which it has fallen to half."""
MAXIMUM = 7
"""The most digits that are sorted."""


@dataclass(frozen=True)
class Task:
    """A network, and what it is to write after what."""

    config: c.ModelConfig
    tokenizer: Tokenizer
    train: list[tuple[str, str]]
    unseen: list[tuple[str, str]]


def translator() -> Task:
    """English sentences of the course, to Spanish."""
    known = lesson("translator")
    assert known.tokenizer is not None
    return Task(known.config, known.tokenizer, PAIRS, UNSEEN[:N_UNSEEN])


def sorter() -> Task:
    """Digits, then the same in order."""
    pairs = list(dict.fromkeys(_rows(random.Random(0), 2000 + N_UNSEEN)))
    words = Tokenizer.train([" ".join("0123456789=")], Words()).templated("{begin} $A", "{begin} $A $B:1")
    learned = stack(words.vocab_size, positions=c.Learned(max_length=2 * MAXIMUM + 2))
    config = c.ModelConfig(decoder=learned, init=c.Init(std=0.1))
    return Task(config, words, pairs[N_UNSEEN:], pairs[:N_UNSEEN])


def _rows(draw: random.Random, n: int) -> Iterator[tuple[str, str]]:
    for _ in range(n):
        digits = [str(draw.randrange(10)) for _ in range(draw.randint(3, MAXIMUM))]
        yield " ".join([*digits, "="]), " ".join(sorted(digits))


TASKS: dict[str, Callable[[], Task]] = {"translator": translator, "sorter": sorter}


def html_of(name: str) -> bytes:
    """The page on a task of TASKS. It opens from a disk, without a server or a network."""
    known = {
        language: {key: text for key, text in texts.items() if key.startswith(TEXTS)}
        for language, texts in catalogues().items()
    }
    parts = {"training": sparse(packed(Reply(_document(name, TASKS[name]())))), "texts": sparse(packed(Reply(known)))}
    return document(name, parts, page="training")


def _document(name: str, task: Task) -> dict[str, Any]:
    words = task.tokenizer
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = Transformer(task.config)
    files = {file: content.decode() for file, content in words.to_files().items()}
    files[CONFIG] = json.dumps(model_json(task.config, GenerationConfig(max_new_tokens=24)))
    return {
        "name": name, "plan": plan_of(task.config, Sentences()), "parameters": _parameters(network), **PACE,
        "train": _examples(task, task.train), "unseen": _examples(task, task.unseen),
        "words": [text.strip("▁") for text in words.tokens(range(words.vocab_size))], "files": files,
    }  # fmt: skip


def _parameters(network: Transformer) -> dict[str, dict[str, Any]]:
    """The shape, mean and deviation of each tensor of a checkpoint; of other names of these, the first name."""
    names, found = dict[int, str](), dict[str, dict[str, Any]]()
    for name, tensor in model_tensors(network).items():
        names[tensor.data_ptr()] = name
        found[name] = {"shape": list(tensor.shape), **_drawn(tensor)}
    for name in dict.fromkeys(name for op in ops_of(network.config) for name in op.weights):
        first = names[parameter(network, name).data_ptr()]
        if first != name:
            found[name] = {"same": first}
    return found


def _drawn(tensor: Tensor) -> dict[str, float]:
    """Vectors, of norms and biases, begin at one number."""
    return {"mean": 0.0, "std": float(tensor.std())} if tensor.ndim > 1 else {"mean": float(tensor.mean()), "std": 0.0}


def _examples(task: Task, pairs: list[tuple[str, str]]) -> list[dict[str, Any]]:
    words = task.tokenizer
    eos, bos = words.need("eos"), words.need("bos")
    sources, targets = (words.encode_batch([pair[i] for pair in pairs]) for i in (0, 1))
    made: list[dict[str, Any]] = []
    for source, target in zip(sources, targets, strict=True):
        if task.config.encoder is None:
            ids, before = {"decoder": [bos, *source, *target]}, len(source)
        else:
            ids, before = {"encoder": [*source, eos], "decoder": [bos, *target]}, 0
        made.append({"ids": ids, "labels": [*[-1] * before, *target, eos]})
    return made
