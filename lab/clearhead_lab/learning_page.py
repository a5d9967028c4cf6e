"""A page in which the course's translator learns in the reader's browser: `clearhead lab train`.

It holds sentences, a record of the network's ops, and of each parameter the mean and the deviation that a new network
has. ui/src/training draws the weights and trains them.
"""

import json
from typing import Any

import torch

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
from clearhead.storage.tensors import model_tensors
from clearhead.text.tokenizers import Tokenizer
from clearhead_lab.course.models import PAIRS, UNSEEN, lesson

TEXTS = ("train.", "draw.", "header.", "crumb.")
"""The beginnings of the keys of the texts that the page needs."""
TEST = UNSEEN[:100]


def html() -> bytes:
    """The page. It opens from a disk, without a server or a network."""
    texts = {
        language: {key: text for key, text in known.items() if key.startswith(TEXTS)}
        for language, known in catalogues().items()
    }
    parts = {"training": task(), "texts": texts}
    return document("translator", {name: sparse(packed(Reply(part))) for name, part in parts.items()}, page="training")


def task() -> dict[str, Any]:
    """The network, how its weights begin, examples, and the files of a checkpoint beside its weights."""
    known = lesson("translator")
    config, words = known.config, known.tokenizer
    assert words is not None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = Transformer(config)
    first, parameters = dict[int, str](), dict[str, dict[str, Any]]()
    for name, tensor in model_tensors(network).items():
        first[tensor.data_ptr()] = name
        parameters[name] = {"shape": tensor.shape, "mean": tensor.mean().item(), "std": tensor.std().item()}
    for name in (name for op in ops_of(config) for name in op.weights):
        parameters.setdefault(name, {"same": first[parameter(network, name).data_ptr()]})
    files = {name: content.decode() for name, content in words.to_files().items()}
    return {
        "name": "translator", "plan": plan_of(config, Sentences()), "parameters": parameters,
        "train": _examples(words, PAIRS), "unseen": _examples(words, TEST),
        "words": [text.strip("▁") for text in words.tokens(range(words.vocab_size))],
        "files": files | {CONFIG: json.dumps(model_json(config, GenerationConfig()))},
    }  # fmt: skip


def _examples(words: Tokenizer, pairs: list[tuple[str, str]]) -> list[dict[str, Any]]:
    eos, bos = words.need("eos"), words.need("bos")
    sides = (words.encode_batch(side) for side in zip(*pairs, strict=True))
    return [
        {"ids": {"encoder": [*source, eos], "decoder": [bos, *target]}, "labels": [*target, eos]}
        for source, target in zip(*sides, strict=True)
    ]
