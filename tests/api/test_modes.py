"""Whatever computes with a network in evaluation mode leaves each of its parts in the mode that it had."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch

from clearhead import config as c
from clearhead.analysis.ablation import Ablations, effects, without
from clearhead.analysis.attention import cross_attention
from clearhead.analysis.attribution import attribute
from clearhead.analysis.comparison import states
from clearhead.api import Model
from clearhead.explorer.session import Session
from clearhead.generation import complete
from clearhead.model import Tokens, Transformer
from clearhead.model.mode import Evaluating
from clearhead.recipe.generation import GenerationConfig
from clearhead.text.tokenizers import Tokenizer
from clearhead.training.performance import choose
from clearhead.training.train import train
from tests.explorer.asking import GENERATE, ask
from tests.explorer.traced import TOKENIZER, stack
from tests.training.tiny import language, new_network, new_run, task_of, translation

Call = Callable[[Model], object]
TEXT, OTHER = "one two three four five two", "eins zwei drei vier"
DROPPING = {"dropout": 0.5}

KINDS: dict[str, c.ModelConfig] = {
    "translator": c.ModelConfig(encoder=stack(**DROPPING), decoder=stack(**DROPPING)),
    "writer": c.ModelConfig(decoder=stack(**DROPPING)),
    "classifier": c.ModelConfig(encoder=stack(**DROPPING), head=c.ClassificationHead(n_labels=3)),
}
ALL, WRITES = tuple(KINDS), ("writer",)
TEMPLATE = "{% for m in messages %}{{ m.content }} {% endfor %}"
CALLS: dict[str, tuple[tuple[str, ...], Call]] = {
    "logits": (ALL, lambda m: m.logits(TEXT, OTHER if m.is_encoder_decoder else None)),
    "predict": (ALL, lambda m: m.predict([TEXT])),
    "classify": (("classifier",), lambda m: m.classify([TEXT])),
    "translate": (("translator",), lambda m: m.translate([TEXT])),
    "hypotheses": (("translator",), lambda m: m.hypotheses([TEXT], GenerationConfig(beams=2, max_new_tokens=4))),
    "generate": (WRITES, lambda m: m.generate(TEXT)),
    "stream": (WRITES, lambda m: list(m.stream(TEXT))),
    "chat": (WRITES, lambda m: list(m.chat([{"role": "user", "content": TEXT}]))),
    "embed": (ALL, lambda m: m.embed([TEXT])),
    "trace": (ALL, lambda m: m.trace(TEXT, OTHER if m.is_encoder_decoder else None)[1]),
    "summary": (ALL, lambda m: m.summary()),
    "changed": (ALL, lambda m: m.changed(scale=False).embed([TEXT])),
    "settings": (ALL, lambda m: m.settings()),
    "tokenizer_files": (ALL, lambda m: m.tokenizer_files()),
}
TENSORS = ("logits", "embed", "trace", "changed")
ELSEWHERE = {
    "tracing": "computes nothing by itself",
    "here": "moves tokens",
    "inputs": "makes tokens",
    "around": "copies what it holds",
    "merge": "adds up weights",
    "explore": "opens the explorer, whose session is below",
    "put_under": "stores a contract",
    "save": "writes files, below",
    "transcribe": "reads sounds: tests/api/test_transcribing.py",
}


def model_of(kind: str) -> Model:
    torch.manual_seed(0)
    network = Transformer(KINDS[kind])
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    files = TOKENIZER.to_files()
    tokenizer = Tokenizer.from_files({**files, "chat_template.jinja": TEMPLATE.encode()}, where="test")
    return Model(network.eval(), tokenizer, GenerationConfig(max_new_tokens=4))


def mixed(network: Transformer) -> dict[str, bool]:
    """Puts the parts in modes of all kinds; returns them by name."""
    for i, module in enumerate(network.modules()):
        module.training = i % 3 != 1
    return modes(network)


def modes(network: torch.nn.Module) -> dict[str, bool]:
    return {name: module.training for name, module in network.named_modules()}


def cases() -> list[tuple[str, str]]:
    return [(name, kind) for name, (kinds, _) in CALLS.items() for kind in kinds]


def test_every_public_method_of_a_model_is_looked_at():
    names = {n for n, _ in inspect.getmembers(Model, inspect.isfunction) if not n.startswith("_")}
    assert names == CALLS.keys() | ELSEWHERE.keys()


@pytest.mark.parametrize(("name", "kind"), cases())
def test_a_method_has_no_dropout_and_leaves_the_modes(name: str, kind: str):
    model, call = model_of(kind), CALLS[name][1]
    expected = call(model)
    before = mixed(model.network)
    found = call(model)
    assert modes(model.network) == before
    torch.testing.assert_close(found, expected, rtol=0, atol=0) if name in TENSORS else None
    assert str(found) == str(expected), "dropout"


SOURCE, TARGET = torch.tensor([[4, 5, 6, 7]]), torch.tensor([[5, 6, 4]])
ANALYSES: dict[str, Callable[[Transformer], object]] = {
    "without": lambda n: without(n, [SOURCE, TARGET], ["decoder.blocks.0.attn.z[h=0]"]),
    "without_mean": lambda n: without(n, [SOURCE, TARGET], ["decoder.blocks.0.attn.z[h=0]"], how="mean"),
    "effects": lambda n: effects(n, [SOURCE, TARGET], ["encoder.blocks.1.ffn.post[f=2]"]),
    "effects_of_edited": lambda n: Ablations(
        n, [SOURCE, TARGET], edit={"decoder.blocks.0.ffn.out": lambda x: x * 0}
    ).effects(["encoder.blocks.1.ffn.post[f=2]"]),
    "attribute": lambda n: attribute(n, [SOURCE, TARGET], 3),
    "cross_attention": lambda n: [x.weights.tolist() for x in cross_attention(n, [[4, 5]], [[6, 7]], bos_id=1)],
    "states": lambda n: states(n, [Tokens(SOURCE), Tokens(TARGET)]),
    "complete": lambda n: complete(n, source=[[4, 5]], config=GenerationConfig(max_new_tokens=3), bos_id=1, eos_id=2),
}


@pytest.mark.parametrize("name", ANALYSES)
def test_an_analysis_has_no_dropout_and_leaves_the_modes(name: str):
    network = model_of("translator").network
    expected = str(ANALYSES[name](network))
    before = mixed(network)
    assert str(ANALYSES[name](network)) == expected
    assert modes(network) == before


@pytest.mark.parametrize("kind", ["translator", "writer"])
def test_the_explorer_leaves_the_modes(kind: str):
    model = model_of(kind)
    before = mixed(model.network)
    session = Session(model, name=kind, text=TEXT, target=OTHER if kind == "translator" else None)
    run: dict[str, Any] = ask(session, "about")[0]["start"]
    edited = {**run, "edits": [{"at": "decoder.blocks.0.attn.z[h=1]", "do": "zero"}]}
    for one in (run, edited):
        ask(session, "run", run=one)
        ask(session, "check", run=one)
        ask(session, "lens", run=one)
        ask(session, "effects", run=one, at=["decoder.blocks.0.attn.z[h=0]"])
        ask(session, "generate", run=one, settings=GENERATE)
    assert modes(model.network) == before


def test_a_task_leaves_the_modes():
    for task in (translation(), language()):
        network = new_network(task, dropout=0.5)
        before = mixed(network)
        first = task.evaluate(network)
        assert task.evaluate(network) == first
        assert modes(network) == before


@pytest.mark.parametrize("kind", ["translation", "lm"])
def test_a_run_leaves_its_network_in_training(kind: Any):
    task = task_of(kind)
    run = new_run(task, steps=2, evaluate_every=1)
    choose(run.network, task.collate([0]), run.config.model_copy(update={"precision": "auto"}), task)
    assert all(modes(run.network).values())
    list(train(run))
    assert all(modes(run.network).values())


def test_blocks_of_evaluation_mode_may_be_nested():
    network = model_of("writer").network
    before, evaluating = mixed(network), Evaluating(network)
    with evaluating, evaluating, Evaluating(network):
        assert not any(modes(network).values())
    assert modes(network) == before
