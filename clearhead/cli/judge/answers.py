"""Compares more than a network's values with the reference library: ids of texts, labels, greedy text and vectors."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.analysis.comparison import CLOSE
from clearhead.api import Model
from clearhead.checkpoints.weights.documents import short, shown
from clearhead.checkpoints.weights.gguf import gguf_in
from clearhead.checkpoints.weights.modules import network_folder
from clearhead.config import ClassificationHead, Continuous, LanguageHead, TaggingHead
from clearhead.generation import complete
from clearhead.generation.settings import GREEDY, changed

TEXTS = (
    *("The quick brown fox doesn't jump.", "  two  spaces", "Étude in ÉTÉ, 1999!", "中文 and 日本語", "a\tb\nc"),
    *("<s> a </s> b <mask>", "[CLS] a [SEP] b [MASK]", "x <|endoftext|> y", "<unk> <pad>", ""),
)
N_WRITTEN = 8
"""Tokens of greedy text that are compared."""


@dataclass(frozen=True)
class Answer:
    """One comparison besides the numbers."""

    what: str
    equal: bool | None
    """Whether both libraries give the same; None if the comparison was skipped."""
    why: str = ""
    """The difference, or the reason for skipping."""


def answers(model: Model, folder: Path, opened: Any) -> Iterator[Answer]:
    """Makes each comparison in turn. `opened` is the same model in the reference library."""
    comparisons = {"ids of texts": _ids, "labels": _labels, "greedy text": _text, "vectors of texts": _vectors}
    for what, compare in comparisons.items():
        try:
            yield compare(model, folder, opened)
        except Exception as error:  # files from elsewhere may raise anything there
            yield Answer(what, None, f"{type(error).__name__}: {shown(str(error).partition(chr(10))[0])}")


def _ids(model: Model, folder: Path, _: Any) -> Answer:
    import transformers

    what = f"ids of {len(TEXTS)} texts"
    if not model.has_tokenizer:
        return Answer("ids of texts", None, "the folder has no tokenizer that is read here")
    if gguf_in(folder) is not None:
        return Answer("ids of texts", None, "the reference makes another tokenizer of a GGUF file")
    theirs: Any = transformers.AutoTokenizer.from_pretrained(str(network_folder(folder)), local_files_only=True)
    for marks in (True, False):
        expected = theirs(list(TEXTS), add_special_tokens=marks)["input_ids"]
        for text, here, there in zip(
            TEXTS, model.tokenizer.encode_batch(TEXTS, special_tokens=marks), expected, strict=True
        ):
            if here != there:
                return Answer(what, False, f"{text!r} has {shown(str(here))}, there {shown(str(there))}")
    return Answer(what, True)


def _labels(model: Model, _: Path, opened: Any) -> Answer:
    head = model.config.head
    if not isinstance(head, ClassificationHead | TaggingHead) or len(opened.config.id2label) != head.n_labels:
        return Answer("labels", None, "this head has none")
    there = tuple(str(opened.config.id2label[i]) for i in range(head.n_labels))
    here = tuple(head.labels or (f"LABEL_{i}" for i in range(head.n_labels)))
    return Answer("labels", here == there, "" if here == there else f"{shown(str(here))}, there {shown(str(there))}")


def _vectors(model: Model, folder: Path, _: Any) -> Answer:
    """Vectors with the default prompt, and of one text with each named prompt."""
    if model.sentences.network is None:
        return Answer("vectors of texts", None, "the folder does not say how to make them")
    texts = [text for text in TEXTS if text]
    asked = [(text, None) for text in [*texts, " ".join(texts * 20)]]
    asked += [(texts[0], prompt) for prompt in model.sentences.prompts.values()]
    try:
        library: Any = import_module("sentence_transformers")
    except ImportError:
        why = "sentence-transformers is not installed; try pip install sentence-transformers"
        return Answer("vectors of texts", None, why)
    theirs = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True).float()
    what = f"vectors of {len(asked)} texts by sentence-transformers {library.__version__}"
    for text, prompt in asked:
        here = model.embed([text], unit=False, prompt=prompt)[0]
        there = theirs.encode(text, prompt=prompt, convert_to_tensor=True, show_progress_bar=False)
        if here.shape != there.shape:
            return Answer(what, False, f"a width of {len(here)}, there {len(there)}")
        gap = float((here - there).abs().max())
        if not gap <= CLOSE * float(there.abs().max()):
            return Answer(what, False, f"a difference of {gap:.1e} for {short((prompt or '') + text)}")
    return Answer(what, True)


def _text(model: Model, _: Path, opened: Any) -> Answer:
    """Compares greedy tokens after the same input, with each library's settings and lengths."""
    config, what = model.config, f"greedy text of {N_WRITTEN} tokens"
    if config.decoder is None or not isinstance(config.head, LanguageHead):
        return Answer("greedy text", None, "this model writes none")
    stack = config.first
    if isinstance(reads := stack.input, Continuous):
        return Answer("greedy text", None, f"it reads {reads.medium}s")
    generator = torch.Generator().manual_seed(1)
    length = min(5, (stack.max_length or 64) // 2)
    source = torch.randint(reads.vocab_size, (1, length), generator=generator)
    own = changed(model.settings(), GREEDY).after(1 if config.encoder is not None else length)
    most = min(own.max_new_tokens, N_WRITTEN)
    settings = own.model_copy(update={"max_new_tokens": most, "min_new_tokens": min(own.min_new_tokens, most)})
    width = N_WRITTEN + (1 if config.encoder is not None else length)
    read: dict[str, Any] = {"prompts" if config.encoder is None else "source": source.tolist()}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of lengths that a config leaves out
        ours = complete(model.network, **read, config=settings)[0][0].tokens
        found = opened.generate(
            source,
            attention_mask=torch.ones_like(source),
            do_sample=False,
            num_beams=1,
            num_return_sequences=1,
            # Beside the library's own limits, which a length named here would replace.
            stopping_criteria=[_ends_at(width)],
        )[0].tolist()
    theirs = found[1 if config.encoder is not None else source.shape[1] :]
    ends = {*settings.end_ids, settings.pad_id}
    here, there = ([token for token in row if token not in ends] for row in (ours, theirs))
    return Answer(what, here == there, "" if here == there else f"{here} after {source[0].tolist()}, there {there}")


def _ends_at(length: int) -> Callable[..., Tensor]:
    """A criterion of the library's generation that ends texts at a length in tokens."""

    def has_ended(ids: Tensor, *_: Any, **__: Any) -> Tensor:
        return torch.full((len(ids),), ids.shape[1] >= length)

    return has_ended
