"""`python -m tests.reliability.modes`: threads predict with networks in training mode, by all tasks and methods."""

import random
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from clearhead import config as c
from clearhead.api import Model
from clearhead.model import Tokens
from clearhead.model.attention import Attention
from clearhead.model.linear import LinearMap
from clearhead.model.mode import Evaluating
from clearhead.tasks.question_answering.task import with_pairs
from clearhead.tasks.registry import TASKS, find
from clearhead.text.special_tokens import with_mask
from clearhead.text.tokenizers import Tokenizer
from tests.api.test_modes import CALLS
from tests.explorer.traced import CONFIGS, TOKENIZER, model_of, stack
from tests.reliability import Counted

DROPPING = {"dropout": 0.4}
WORDS = ("one two three four five two", "two two", "five", "three one four one five", "eins zwei", "four three two one")
ASK = "what one two\tone two three four five"
CALLABLE = ("logits", "predict", "translate", "hypotheses", "generate", "stream", "embed", "trace")


class Dropped(LinearMap):
    """A map of another's, with PyTorch's dropout in it."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear.in_features, linear.out_features, linear.bias)
        self.linear, self.dropout = linear, nn.Dropout(0.3)

    def effective_weight(self) -> Tensor:
        return self.linear.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.linear(x))


def models() -> dict[str, Model]:
    """A model of each head, in training mode; in each second one, a part is another's."""
    tokenizer = with_pairs(with_mask(TOKENIZER))
    read = {"input": c.TokenInput(vocab_size=tokenizer.vocab_size, n_types=2, norm=True), **DROPPING}
    configs = {
        "writer": c.ModelConfig(decoder=stack(**DROPPING)),
        "translator": c.ModelConfig(encoder=stack(**DROPPING), decoder=stack(**DROPPING)),
        "masked": c.ModelConfig(encoder=stack(**read), head=c.LanguageHead(transform=True, bias=True)),
        "classifier": c.ModelConfig(encoder=stack(**read), head=c.ClassificationHead(n_labels=3, dropout=0.4)),
        "tagger": c.ModelConfig(encoder=stack(**read), head=c.TaggingHead(n_labels=5)),
        "spans": c.ModelConfig(encoder=stack(**read), head=c.SpanHead()),
        "vectors": c.ModelConfig(encoder=stack(**DROPPING), head=c.NoHead()),
        "vision": CONFIGS["vision"],
    }
    made = {name: model_of(config) for name, config in configs.items()}
    template = "{% for m in messages %}{{ m.content }} {% endfor %}"
    files = {**TOKENIZER.to_files(), "chat_template.jinja": template.encode()}
    for name in ("masked", "classifier", "tagger", "spans"):
        made[name] = Model(made[name].network, tokenizer)
    made["writer"] = Model(made["writer"].network, Tokenizer.from_files(files, where="test"), made["writer"].generation)
    for i, model in enumerate(made.values()):
        for attn in [part for part in model.network.modules() if isinstance(part, Attention)]:
            if i % 2 and isinstance(attn.out, nn.Linear):
                attn.set_submodule("out", Dropped(attn.out))
        model.network.train()
    return made


def questions(made: dict[str, Model], folder: Path) -> list[tuple[str, Callable[[], object]]]:
    """Every task of every model that suits it, and every method that computes, for several texts."""
    picture = folder / "picture.png"
    Image.new("RGB", (8, 8), (200, 40, 90)).save(picture)
    asked: list[tuple[str, Callable[[], object]]] = []

    def ask(name: str, call: Callable[..., object], *args: object) -> None:
        asked.append((name, lambda: call(*args)))

    def by_task(task: Any, model: Model, text: str) -> object:
        return list(task.predict(model, [text]))

    def by_method(method: Callable[[Model], object], model: Model) -> object:
        return method(model)

    for name, model in made.items():
        tasks = [task for task in TASKS if find(task, where="test").suits(model.config)]
        for task in tasks:
            texts = {"image_classification": (str(picture),), "question_answering": (ASK,)}.get(task, WORDS)
            texts = [f"{text} <mask>" for text in texts] if task == "masked_lm" else texts
            for text in texts:
                ask(f"{task} by {name}", by_task, find(task, where="test"), model, text)
        kinds = {"writer": "writer", "translator": "translator", "classifier": "classifier"}
        for method, (kind, call) in CALLS.items() if name in kinds else ():
            if kinds[name] in kind and method in (*CALLABLE, "chat", "classify"):
                ask(f"{method} of {name}", by_method, call, model)
        if name == "vectors":
            ask("embed of vectors", lambda model: model.embed(list(WORDS)), model)
    return asked


def answer(call: Callable[[], object]) -> object:
    """The answer, or the line that says why there is none, both to the bit."""
    return _plain(call())


def _plain(value: object) -> object:
    return value.tolist() if isinstance(value, Tensor) else str(value)


def in_threads(folder: Path, n: int = 2000, n_threads: int = 8) -> Counted:
    """Answers of threads that ask at once, against those of one thread in evaluation mode."""
    torch.set_num_threads(1)
    folder.mkdir(exist_ok=True)
    made = models()
    asked = questions(made, folder)
    for model in made.values():
        model.network.eval()
    expected = [answer(call) for _, call in asked]
    for model in made.values():
        model.network.train()
    order = [i % len(asked) for i in range(n)]
    random.Random(11).shuffle(order)
    start, wrong = threading.Barrier(n_threads), list[str]()

    def work(mine: Sequence[int]) -> None:
        start.wait()
        wrong.extend(asked[i][0] for i in mine if answer(asked[i][1]) != expected[i])

    with ThreadPoolExecutor(n_threads) as pool:
        for done in [pool.submit(work, order[i::n_threads]) for i in range(n_threads)]:
            done.result()
    left = [name for name, model in made.items() if not all(part.training for part in model.network.modules())]
    for name in sorted(set(wrong)):
        print("  wrong:", name, wrong.count(name))
    ways = len({name for name, _ in asked})
    said = f"{n_threads} threads, {len(made)} networks in training mode, {ways} ways to ask: {len(wrong)} wrong of {n}"
    return Counted(n, len(wrong) + len(left), said + (f", modes left behind in {left}" if left else ""))


def beside_training(n: int = 200) -> int:
    """Passes in training mode that had no dropout, or another mode, because other threads predict meanwhile."""
    model = models()["writer"]
    ids, over, broken = torch.arange(3, 9)[None], threading.Event(), 0

    def predict() -> None:
        while not over.is_set():
            with Evaluating(model.network), torch.no_grad():
                model.network(Tokens(ids))

    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            pool.submit(predict)
        for _ in range(n):
            with torch.no_grad():
                first, second = (model.network(Tokens(ids)) for _ in range(2))
            broken += torch.equal(first, second) or not model.network.training
        over.set()
    return broken


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(in_threads(Path(folder)).said)
