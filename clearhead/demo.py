"""`clearhead demo`: a real translator, trained from nothing on phrases composed here, and opened to look at."""

import json
import re
import sys
import time
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from clearhead.analysis.alignment import aligned, cross_attention
from clearhead.api import Model, architecture
from clearhead.data.phrases import KINDS, Phrase, PhraseCorpus, compose
from clearhead.data.sources import Pairs
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import Interrupted, UserError
from clearhead.explorer.alignment import PageFacts, alignment_page
from clearhead.explorer.pages import translated
from clearhead.model import Transformer
from clearhead.randomness import key
from clearhead.recipe import ModelChoice
from clearhead.recipe_data import BPE
from clearhead.recipe_generation import GenerationConfig
from clearhead.recipe_training import Muon, Training, WarmupStableDecay
from clearhead.tasks.metrics import bleu
from clearhead.tasks.translation import EncodedPairs, Translation
from clearhead.training.consumers import ProgressBar
from clearhead.training.train import Ended, Run, train

BUDGET = 138.0
"""Seconds from the start of the command to the end of training."""
LAYER = 1
"""The decoder layer whose mean cross-attention is measured and shown as the word alignment."""
TOKENIZER = BPE(vocab_size=1500, split_digits=True)
CHOICE = ModelChoice(preset="demo")
GENERATION = GenerationConfig(max_new_tokens=96)
TRAINING = Training(
    minutes=2.0,
    max_tokens=2048,
    optimizer=Muon(lr=4e-3, adamw_lr=4e-3),
    schedule=WarmupStableDecay(warmup=50, decay_fraction=0.5),
    evaluate_every=1_000_000,
)
N_SHOWN = 32
"""Phrases on the page."""


@dataclass(frozen=True)
class Figures:
    """What the demo measured, on phrases it has not seen."""

    seconds: float
    exact_match: float
    bleu: float
    alignment: float
    kinds: dict[str, float]
    """Share exactly right, by kind."""
    n_train: int
    n_test: int
    mean_target: float
    """Tokens of a training target."""
    parameters: int


def run_demo(
    locale: str,
    *,
    out: Path | None,
    browser: bool,
    as_json: bool,
    seed: int,
    phrases: Sequence[str],
) -> None:
    """Compose, train, translate, measure, show; then translate what the user types."""
    began = time.perf_counter()
    folder = out or Path(f"clearhead-demo-{locale}")
    if folder.exists() and any(folder.iterdir()) and not (folder / "figures.json").exists():
        raise UserError(
            f"{folder}: expected a new folder or an earlier demo's, got one with other files; try another --out"
        )
    say(f"Composing English -> {locale} phrases from CLDR: dates, countries, amounts, units, lists ...")
    corpus = compose(locale, seed=seed)
    model = learn(corpus, seed=seed, began=began)
    sources = [phrase.source for phrase in corpus.test]
    outputs = model.translate(sources)
    figures = measure(model, corpus, outputs, began)
    report(figures, corpus, outputs)
    own = translate_own(model, corpus, list(phrases))
    page = write(folder, model, corpus, outputs, figures, own)
    figures_seconds = time.perf_counter() - began
    say(f"\nModel and page: {folder}  ({figures_seconds:.0f} s in all)")
    if browser:
        webbrowser.open(page.absolute().as_uri())
    if sys.stdin.isatty() and not phrases and not as_json:
        converse(model, corpus)
    say(
        "Next, real sentences: two text files, one sentence a line, then\n"
        "  clearhead train translation --source a.en --target a.xx"
    )
    if as_json:
        print(json.dumps(vars(figures) | {"seconds": figures_seconds}))


def learn(corpus: PhraseCorpus, *, seed: int, began: float) -> Model:
    """Tokenizer and network, trained on the corpus until the time is up."""
    train_pairs = pairs_of(corpus.train)
    tokenizer = Tokenizer.train([*train_pairs.source, *train_pairs.target], TOKENIZER)
    task = Translation(
        tokenizer,
        encoded(tokenizer, train_pairs),
        encoded(tokenizer, pairs_of(corpus.valid)),
        max_tokens=TRAINING.max_tokens,
        generation=GENERATION,
    )
    torch.manual_seed(key(seed, "init"))
    network = Transformer(architecture(CHOICE, tokenizer.vocab_size))
    minutes = max(5.0, BUDGET - (time.perf_counter() - began)) / 60
    config = TRAINING.model_copy(update={"seed": seed, "minutes": minutes})
    examples = f"{len(corpus.train):,} phrases, such as {corpus.train[0].source!r} -> {corpus.train[0].target!r}"
    say(f"Training a Transformer of {sum(p.numel() for p in network.parameters()):,} parameters on {examples}")
    bar = ProgressBar()
    run = Run(network, task, config, None)
    for event in train(run):
        bar(event)
        if isinstance(event, Ended) and event.signal is not None:
            raise Interrupted("stopped before the demo was done; nothing was kept", event.signal)
    return Model(network.eval(), tokenizer, GENERATION)


# --- measures ----------------------------------------------------------------------------------------------------


def measure(model: Model, corpus: PhraseCorpus, outputs: Sequence[str], began: float) -> Figures:
    """How many unseen phrases are exactly right, by kind; BLEU; and whether attention points where it should."""
    right: dict[str, list[bool]] = {kind: [] for kind in KINDS}
    for phrase, output in zip(corpus.test, outputs, strict=True):
        right[phrase.kind].append(output == phrase.target)
    lengths = [len(ids) for ids in model.tokenizer.encode_batch([phrase.target for phrase in corpus.train])]
    return Figures(
        seconds=time.perf_counter() - began,
        exact_match=sum(map(sum, right.values())) / len(corpus.test),
        bleu=bleu(outputs, [[phrase.target] for phrase in corpus.test]).value,
        alignment=alignment_accuracy(model, corpus.test, LAYER),
        kinds={kind: sum(hits) / len(hits) for kind, hits in right.items()},
        n_train=len(corpus.train),
        n_test=len(corpus.test),
        mean_target=sum(lengths) / len(lengths),
        parameters=model.summary().parameters,
    )


def alignment_accuracy(model: Model, phrases: Sequence[Phrase], layer: int) -> float:
    """Share of content tokens whose strongest cross-attention, mean over a layer's heads, is where the composer says.

    Content tokens are those of the reference inside one of the composer's spans; right is any source token of the same
    span. The references are given, so that every phrase counts.
    """
    tokenizer = model.tokenizer
    looks = cross_attention(
        model.network,
        tokenizer.encode_batch([phrase.source for phrase in phrases], eos=True),
        tokenizer.encode_batch([phrase.target for phrase in phrases], eos=True),
        bos_id=tokenizer.need("bos"),
    )
    hits: list[bool] = []
    for phrase, look in zip(phrases, looks, strict=True):
        found, right = aligned(look, layer), right_pairs(tokenizer, phrase)
        hits += [(t, found[t]) in right for t in sorted({t for t, _ in right})]
    return sum(hits) / len(hits)


def right_pairs(tokenizer: Tokenizer, phrase: Phrase) -> frozenset[tuple[int, int]]:
    """(target token, source token) pairs that belong to the same span of the composer's."""
    source, target = tokenizer.offsets(phrase.source), tokenizer.offsets(phrase.target)
    return frozenset(
        (t, s)
        for span in phrase.spans
        for t, at in enumerate(target)
        if overlap(at, span.target)
        for s, where in enumerate(source)
        if overlap(where, span.source)
    )


def overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Whether two character ranges share a character."""
    return a[0] < b[1] and b[0] < a[1]


# --- what people see ---------------------------------------------------------------------------------------------


def report(figures: Figures, corpus: PhraseCorpus, outputs: Sequence[str]) -> None:
    """The figures, by kind, with one held-out phrase each."""
    say(f"\n{figures.n_test} phrases it has never seen:")
    shown: set[str] = set()
    for phrase, output in zip(corpus.test, outputs, strict=True):
        if phrase.kind not in shown:
            shown.add(phrase.kind)
            mark = "ok" if output == phrase.target else f"WRONG, right is: {phrase.target}"
            say(f"  {phrase.kind:<24}{figures.kinds[phrase.kind]:>5.0%} right   {phrase.source}  ->  {output}   {mark}")
    say(
        f"  all: {figures.exact_match:.1%} exactly right, BLEU {figures.bleu:.1f}; decoder layer {LAYER} looks at the"
        f" right source word for {figures.alignment:.1%} of content tokens"
    )


def known_words(corpus: PhraseCorpus) -> set[str]:
    """Every source word met in training, in lower case."""
    return {word.lower() for phrase in corpus.train for word in words(phrase.source)}


def words(text: str) -> list[str]:
    """Runs of letters; numbers are made of digits, which are all known."""
    return re.findall(r"[^\W\d_]+", text)


def what_it_knows(corpus: PhraseCorpus) -> str:
    """A line or two on what may be asked."""
    parts = [f"{len(names)} {plural(role)} ({', '.join(names[:2])}, ...)" for role, names in corpus.names.items()]
    return "It knows " + ", ".join(parts) + ", dates, times, numbers, and lists of these."


def plural(role: str) -> str:
    """The role's name for several."""
    return role[:-1] + "ies" if role.endswith("y") else role + "s"


def translate_own(model: Model, corpus: PhraseCorpus, texts: list[str]) -> list[tuple[str, str, tuple[str, ...]]]:
    """The user's own phrases with their translations and the words training never met, told as they come."""
    known = known_words(corpus)
    result: list[tuple[str, str, tuple[str, ...]]] = []
    for text in texts:
        if not text.strip():
            continue
        output = model.translate([text])[0]
        unseen = tuple(word for word in words(text) if word.lower() not in known)
        note = f"   (never seen in training: {', '.join(unseen)})" if unseen else ""
        say(f"  {text}  ->  {output}{note}")
        result.append((text, output, unseen))
    return result


def converse(model: Model, corpus: PhraseCorpus) -> None:
    """Translate line after line until an empty one."""
    say(f"\nYour turn. {what_it_knows(corpus)}\nAn empty line ends.")
    while True:
        try:
            text = input("en> ").strip()
        except EOFError:
            return
        if not text:
            return
        translate_own(model, corpus, [text])


def write(
    folder: Path,
    model: Model,
    corpus: PhraseCorpus,
    outputs: Sequence[str],
    figures: Figures,
    own: Sequence[tuple[str, str, tuple[str, ...]]],
) -> Path:
    """Model, figures and page into the folder; returns the page."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"model-{time.strftime('%Y%m%d-%H%M%S')}"
    model.save(folder / name)
    shown = chosen(corpus.test)
    references = [corpus.test[i] for i in shown]
    texts = [text for text, _, _ in own] + [phrase.source for phrase in references]
    results = [output for _, output, _ in own] + [outputs[i] for i in shown]
    none = [None] * len(own)
    right = [
        tuple(sorted(right_pairs(model.tokenizer, phrase))) if outputs[i] == phrase.target else None
        for i, phrase in zip(shown, references, strict=True)
    ]
    items = translated(
        model,
        texts,
        results,
        references=[*none, *(phrase.target for phrase in references)],
        kinds=[*none, *(phrase.kind for phrase in references)],
        alignments=[*none, *right],
        unseen=[*(unseen for _, _, unseen in own), *([()] * len(shown))],
    )
    page = folder / "page.html"
    page.write_text(alignment_page(items, facts(figures, corpus.locale)), encoding="utf-8")
    (folder / "figures.json").write_text(json.dumps(vars(figures) | {"model": name}, indent=2), encoding="utf-8")
    (folder / "best.json").write_text(json.dumps({"checkpoint": name}), encoding="utf-8")
    return page


def chosen(phrases: Sequence[Phrase]) -> list[int]:
    """Some phrases of every kind, long enough to show reordering."""
    each = N_SHOWN // len(KINDS)
    by_kind = {kind: [i for i, phrase in enumerate(phrases) if phrase.kind == kind] for kind in KINDS}
    return [i for kind in KINDS for i in sorted(by_kind[kind], key=lambda i: -len(phrases[i].spans))[:each]]


def facts(figures: Figures, locale: str) -> PageFacts:
    """What the page says about the model."""
    return PageFacts(
        title=f"What your translator attended to: English to {locale}",
        subtitle=f"Trained on {figures.n_train:,} composed phrases; the phrases here were not among them",
        figures=(
            ("exactly right", f"{figures.exact_match:.1%}"),
            ("BLEU", f"{figures.bleu:.1f}"),
            ("attention on the right word", f"{figures.alignment:.1%}"),
            ("seconds", f"{figures.seconds:.0f}"),
            ("parameters", f"{figures.parameters:,}"),
        ),
        address=f"decoder.blocks.{LAYER}.cross.weights",
        default_layer=LAYER,
    )


def pairs_of(phrases: Sequence[Phrase]) -> Pairs:
    """Phrases as sentence pairs."""
    return Pairs([phrase.source for phrase in phrases], [phrase.target for phrase in phrases])


def encoded(tokenizer: Tokenizer, pairs: Pairs) -> EncodedPairs:
    """Pairs as the task wants them."""
    return EncodedPairs(pairs, tokenizer.encode_batch(pairs.source), tokenizer.encode_batch(pairs.target))


def say(text: str) -> None:
    """To people, on stderr, so that --json stays alone on stdout."""
    print(text, file=sys.stderr, flush=True)
