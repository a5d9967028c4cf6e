"""Compares a checkpoint with the reference library, value by value, and explains its config."""

import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.analysis.comparison import CLOSE, LOGITS, Difference, differences, reference_states, sample, states
from clearhead.api import CONFIG, Model, load
from clearhead.api.folders import unread
from clearhead.checkpoints.families import family_of
from clearhead.checkpoints.families.gguf import content_of, described
from clearhead.checkpoints.families.verdicts import OPENS
from clearhead.checkpoints.weights.documents import CONFIG_LIMIT, read_json, short, shown
from clearhead.checkpoints.weights.fields import ANOTHER, Decision
from clearhead.checkpoints.weights.gguf import GgufFile, gguf_in
from clearhead.checkpoints.weights.hub import locate
from clearhead.checkpoints.weights.modules import network_folder
from clearhead.cli.judge.verdict import fields
from clearhead.config import ClassificationHead, Continuous, TaggingHead, TokenInput, VectorHead
from clearhead.errors import UserError
from clearhead.generation import complete
from clearhead.generation.settings import GREEDY, changed
from clearhead.json_text import JsonObject

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
    if config.decoder is None or not config.predicts_tokens:
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


LENGTHS = (12, 7)


@dataclass(frozen=True)
class Check:
    """The result of a check."""

    architecture: str
    parameters: int
    decisions: tuple[Decision, ...]
    reference: str | None
    """The reference library and its version; None if it is not installed."""
    differences: tuple[Difference, ...]
    answers: tuple[Answer, ...]
    """The other comparisons, and those that were skipped."""
    unread: tuple[str, ...]
    """Files of the folder that `load` does not read."""

    @property
    def close(self) -> bool:
        """Whether every value is close, and all other comparisons are equal."""
        return not self.wrong and all(one.relative <= CLOSE for one in self.differences)

    @property
    def wrong(self) -> list[Answer]:
        """The comparisons that differ."""
        return [one for one in self.answers if one.equal is False]


@contextmanager
def foreign_folder(name: str, revision: str | None) -> Iterator[Path]:
    """The model's folder for other libraries. A model of ours is written to a temporary one."""
    folder = locate(name, revision=revision)
    if gguf_in(folder) is not None:
        yield folder
        return
    config = network_folder(folder) / CONFIG
    document = read_json(config, limit=CONFIG_LIMIT) if config.is_file() else {"clearhead": 1}
    if "clearhead" not in document:
        yield folder
        return
    with tempfile.TemporaryDirectory() as temporary:
        copy = load(folder).save(Path(temporary) / "model")
        if "clearhead" in read_json(copy / CONFIG):
            raise UserError(f"{name}: expected an architecture that other libraries have, got one of our own")
        yield copy


def compare(folder: Path) -> Check:
    """Compares a folder's model in both libraries: float32 values on one random input, and answers for texts."""
    document, where = _config(folder)
    family = family_of(document, where=where)
    head = family.head_of(document, where=where)
    model = load(folder, dtype=torch.float32)
    reference, gaps, others = compared(model, folder, head.architecture)
    return Check(
        architecture=head.architecture,
        parameters=model.network.n_parameters,
        decisions=tuple(family.decisions(document, where=where)),
        reference=reference,
        differences=tuple(gaps),
        answers=tuple(others),
        unread=tuple(unread(folder)) if folder.is_dir() else (),
    )


def _config(folder: Path) -> tuple[dict[str, Any], str]:
    """The config of a folder or of a GGUF file, and where it is."""
    if (file := gguf_in(folder)) is not None:
        return described(content_of(GgufFile.open(file)))[0], str(file)
    config = network_folder(folder) / CONFIG
    return read_json(config, limit=CONFIG_LIMIT), str(config)


def compared(
    model: Model, folder: Path, architecture: str
) -> tuple[str | None, Sequence[Difference], Sequence[Answer]]:
    """The reference's name and version, the differences and other comparisons; None and nothing without it."""
    try:
        import transformers
    except ImportError:
        return None, (), ()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    pad, end = model.generation.pad_id, end_of_texts(model)
    generator = torch.Generator().manual_seed(0)
    limits = [stack.max_length or max(LENGTHS) for stack in model.config.stacks.values()]
    pads = pad is not None and not (isinstance(model.config.head, VectorHead) and model.config.head.fills)
    lengths = [min(n, *limits) for n in (LENGTHS if pads else LENGTHS[:1])]
    arguments, tokens = sample(model.network, lengths=lengths, generator=generator, pad=pad or 0, end=end)
    file = gguf_in(folder)
    place, where = (network_folder(folder), CONFIG) if file is None else (file.parent, file.name)
    form: dict[str, Any] = {} if file is None else {"gguf_file": file.name}
    try:
        # Ignores the config's choice of attention, for which the library may download code.
        opened: Any = getattr(transformers, architecture).from_pretrained(
            place, dtype=torch.float32, attn_implementation="eager", local_files_only=True, **form
        )
        theirs = reference_states(opened.eval(), arguments, model.network)
    except Exception as error:  # a config from elsewhere may raise anything there
        what = f"{type(error).__name__}: {shown(str(error))}"
        raise UserError(
            f"{place / where}: expected a model that the reference opens too, got {what}; {ANOTHER}"
        ) from error
    gaps = differences(states(model.network, tokens), theirs, tokens)
    return f"transformers {transformers.__version__}", gaps, [*answers(model, folder, opened)]


def end_of_texts(model: Model) -> int | None:
    """The token that ends a text and stands nowhere else, if the model reads the state at that token."""
    head, ends, reads = model.config.head, model.generation.end_ids, model.config.output.input
    if not ends or not isinstance(reads, TokenInput):
        return None
    if isinstance(head, VectorHead) and model.config.decoder is not None:
        # Where a config says 2, the reference looks for the largest id of a text.
        return reads.vocab_size - 1 if ends[0] == 2 else ends[0]
    return ends[0] if model.is_encoder_decoder and isinstance(head, ClassificationHead) else None


def lines(found: Check) -> Iterator[str]:
    """The result as lines for people."""
    yield f"{found.architecture}, {found.parameters:,} parameters"
    yield from fields(found.decisions)
    yield ""
    yield f"Files that are not read: {', '.join(map(shown, found.unread)) or 'none'}"
    if found.reference is None:
        return
    yield ""
    yield f"Largest difference from {found.reference}, float32, the same random input; as a share of max(1, largest):"
    width = max(len(one.address) for one in found.differences)
    for gap in found.differences:
        mark = "" if gap.relative <= CLOSE else "  not close"
        yield f"  {gap.address:<{width}}  {gap.largest:.1e}  {gap.relative:.1e}{mark}"
    yield ""
    for one in found.answers:
        said = {True: "equal", False: f"not equal: {one.why}", None: f"not compared: {one.why}"}[one.equal]
        yield f"  {one.what}: {said}"
    logits = next(one for one in found.differences if one.address == LOGITS)
    if found.close:
        equal = ", ".join(["states", LOGITS, *(one.what for one in found.answers if one.equal)])
        rest = ", ".join(one.what for one in found.answers if one.equal is None)
        yield f"Close: every share is at most {CLOSE:.0e}; {LOGITS} differs by {logits.largest:.1e}."
        yield f"Compared: {equal}. Not compared: {rest or 'nothing of these'}."


def to_json(found: Check) -> JsonObject:
    """The result for programs."""
    told: dict[str, Any] = asdict(found)
    return {
        "verdict": OPENS,
        "fields": told.pop("decisions"),
        **told,
        "close": found.close if found.reference else None,
    }
