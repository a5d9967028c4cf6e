"""`clearhead demo`: trains a translator from scratch on sentences composed here, and opens it in the explorer."""

import json
import shlex
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from clearhead.api import CONFIG, Model, architecture, model_json
from clearhead.data.encoded import EncodedPairs
from clearhead.data.sentences import Sentence, SentenceCorpus, compose
from clearhead.data.sources import Pairs
from clearhead.demo.figures import FLIPPED, deciding_head, measure
from clearhead.demo.talk import Own, can_ask, converse, report, say, suggest, translate_own
from clearhead.errors import Interrupted, UserError, pasted
from clearhead.explorer.answering.questions import RunRequest
from clearhead.explorer.export.page import export_translations
from clearhead.explorer.hosting.server import serving
from clearhead.explorer.session import Session
from clearhead.explorer.static_files import check_built
from clearhead.recipe import ModelChoice
from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.places import BEST
from clearhead.recipe.tokenizers import BPE
from clearhead.recipe.training import Muon, Training, WarmupStableDecay
from clearhead.runs import Keeper
from clearhead.storage import checkpoints
from clearhead.tasks.translation import Translation
from clearhead.text.tokenizers import Tokenizer
from clearhead.training.consumers import ProgressBar
from clearhead.training.events import Ended
from clearhead.training.metrics_log import MetricsLog
from clearhead.training.planning.fitting import Fitting
from clearhead.training.run import Run
from clearhead.training.run_folder import is_free, lock_folder, undo
from clearhead.training.train import train
from clearhead.web.page import open_browser

LAYER = 1
"""The decoder layer whose mean cross-attention is measured and shown as the word alignment."""
TOKENIZER = BPE(vocab_size=2000)
CHOICE = ModelChoice(preset="demo")
GENERATION = GenerationConfig(max_new_tokens=48)
TRAINING = Training(
    steps=1700,  # Two minutes on two cores. A limit in minutes made a translator of 17 steps on a busy machine.
    max_tokens=2048,
    optimizer=Muon(lr=4e-3, adamw_lr=4e-3),
    schedule=WarmupStableDecay(warmup=50, decay_fraction=0.5),
    evaluate_every=1_000_000,
    save_every=100,
    keep_last=1,
)
FIGURES, PAGE = "figures.json", "page.html"


def run_demo(
    language: str,
    *,
    out: Path | None = None,
    browser: bool = False,
    as_json: bool = False,
    seed: int = 0,
    sentences: Sequence[str] = (),
    began: float | None = None,
) -> None:
    """Composes sentences, trains, translates, measures and shows the results, then translates what the user types.

    `began` is the start of the command, by time.perf_counter. Raises UserError, before the training, for another
    language than it can write and for a folder that holds other files.
    """
    began = time.perf_counter() if began is None else began
    check_built()
    say(f"Composing everyday sentences, English -> {language}")
    corpus = compose(language, seed=seed)
    folder = out or Path(f"clearhead-demo-{corpus.language}")
    is_new = prepared(folder)
    with lock_folder(folder):
        run = folder / f"run-{time.strftime('%Y%m%d-%H%M%S')}"
        try:
            model = learn(corpus, run, seed=seed)
        except BaseException:
            shutil.rmtree(run, ignore_errors=True)
            if is_new:
                undo(folder, is_ours=True)
            raise
        # Written first, so that an interruption of the rest leaves the model usable.
        (folder / BEST).write_text(json.dumps({"checkpoint": run.name}), encoding="utf-8")
        say(f"Translating {len(corpus.test)} sentences it has never seen ...")
        outputs = model.translate([one.source for one in corpus.test], model.generation)
        figures = measure(model, corpus, outputs, layer=LAYER, began=began)
        report(figures, corpus, outputs)
        ambiguous = ([one for one in corpus.test if one.kind == kind and one.choice] for kind in FLIPPED)
        edit = max((deciding_head(model, some) for some in ambiguous), key=lambda edit: edit.after[1] - edit.before[1])
        suggest(edit)
        own, suggested = translate_own(model, corpus, sentences), Own(edit.source, edit.target, ())
        page = folder / PAGE
        text = own[0].source if own else edit.source
        session = Session(model, name=str(folder), folder=folder, text=text, data=[*pairs_of(corpus.valid)])
        write_page(session, page, corpus, outputs, [*own, suggested])
        figures = replace(figures, seconds=time.perf_counter() - began)
        (folder / FIGURES).write_text(
            json.dumps(asdict(figures) | {"edit": asdict(edit), "model": run.name}, indent=2), encoding="utf-8"
        )
    say(f"\nDone in {figures.seconds:.0f} s.  Model: {folder}  Page: {page}")
    say(next_steps(folder, corpus.language, corpus.test[0].source))
    if as_json:
        print(
            json.dumps(asdict(figures) | {"edit": asdict(edit), "translations": [asdict(one) for one in own]}),
            flush=True,
        )
    if browser:
        explore(session, folder)
    elif not sentences and not as_json and can_ask() and (typed := converse(model, corpus)):
        write_page(session, page, corpus, outputs, [*typed, suggested])
        say(f"Your sentences are on the page now: {page}")


def write_page(
    session: Session, path: Path, corpus: SentenceCorpus, outputs: Sequence[str], own: Sequence[Own]
) -> None:
    """Writes the explorer's file on the user's own sentences and the first of the test, as many as it holds."""
    runs = [RunRequest(text=one.source, target=one.output) for one in own]
    runs += [RunRequest(text=one.source, target=output) for one, output in zip(corpus.test, outputs, strict=True)]
    export_translations(session, runs, path)


def explore(session: Session, folder: Path) -> None:
    """Opens the explorer until Ctrl-C. Without a display or a terminal it only tells the command that does."""
    with serving(session) as server:
        if not open_browser(server.url) and not can_ask():
            say(f"\nLook inside it:\n  clearhead explore {pasted(folder)}")
            return
        say(f"\nThe explorer, on your model: {server.url}\nType your own sentences there. Ctrl-C ends it.")
        with suppress(KeyboardInterrupt):
            server.wait()


def prepared(folder: Path) -> bool:
    """Makes the folder, before the training; returns whether it is new. Raises UserError if it cannot be used."""
    try:
        is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        others = not is_free(folder) and not (folder / BEST).exists()
    except OSError as error:
        raise UserError(f"{folder}: expected a folder to write to, got {error.strerror}; try another --out") from None
    if others:
        raise UserError(
            f"{folder}: expected a new folder or an earlier demo's, got one with other files; try another --out"
        )
    return is_new


def learn(corpus: SentenceCorpus, folder: Path, *, seed: int) -> Model:
    """Trains a tokenizer and a network on the corpus, with checkpoints in a new folder."""
    train_pairs = pairs_of(corpus.train)
    tokenizer = Tokenizer.train([*train_pairs.source, *train_pairs.target], TOKENIZER)
    task = Translation(
        tokenizer,
        EncodedPairs.of(train_pairs, tokenizer),
        EncodedPairs.of(pairs_of(corpus.valid), tokenizer),
        max_tokens=TRAINING.max_tokens,
        generation=GENERATION,
    )
    config = TRAINING.model_copy(update={"seed": seed})
    network = Fitting(config).new_network(architecture(CHOICE, tokenizer.vocab_size), task)
    files = checkpoints.Checkpoint(json={CONFIG: model_json(network.config, GENERATION)}, raw=tokenizer.to_files())
    say(
        f"Training an encoder-decoder from nothing on {len(corpus.train):,} of them, such as\n"
        f"    {train_pairs.source[0]}\n    {train_pairs.target[0]}"
    )
    run = Run(network, task, config, folder, files)
    with ProgressBar() as bar:
        consumers = [bar, MetricsLog(folder), Keeper(run)]
        for event in train(run):
            for consume in consumers:
                consume(event)
            if isinstance(event, Ended) and event.signal is not None:
                raise Interrupted("stopped before the demo was done; nothing was kept", event.signal)
    return Model(network.eval(), tokenizer, GENERATION)


def pairs_of(sentences: Sequence[Sentence]) -> Pairs:
    """Sentences as pairs of texts."""
    return Pairs([one.source for one in sentences], [one.target for one in sentences])


def next_steps(folder: Path, language: str, example: str) -> str:
    """Commands that use this model, and one that trains on real sentences."""
    return (
        f"\nThis translator again:\n  clearhead translate {pasted(folder)} {shlex.quote(example)}\n"
        f"Real sentences, from two text files where line n of one translates line n of the other:\n"
        f"  clearhead train translation --source sentences.en --target sentences.{language}"
    )
