"""A task with labels of its own: it counts the vowels of words. `tests/examples/test_task.py` has a simpler one."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from clearhead.api import load
from clearhead.cli import main
from clearhead.config import ClassificationHead, Config, ModelConfig
from clearhead.data.batches import token_budget_batches
from clearhead.data.corpus import Encoded
from clearhead.data.sequences import lengths_of
from clearhead.data.sources import read_texts
from clearhead.data.splits import fingerprint
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.recipe import ModelChoice, Recipe
from clearhead.recipe.data import Source
from clearhead.recipe.tokenizers import Characters, TokenizerConfig
from clearhead.runs import start
from clearhead.tasks.evaluation import Evaluation, Sample
from clearhead.tasks.registry import TASKS, validate
from clearhead.tasks.scores import Score
from clearhead.tasks.task import Batch, Files, Prediction, Prepared, RecipeTask, Trained, head_loss
from clearhead.text.tokenizers import Tokenizer
from clearhead.training.events import Stepped
from clearhead.training.train import train

SMALL = {"d_model": 32, "n_layers": 1, "n_heads": 2, "d_ff": 64, "dropout": 0.0}


# --- the task ----------------------------------------------------------------------------------------------------


class VowelRecipe(Recipe):
    """How to train a network that counts vowels."""

    task: Literal["vowels"]
    tokenizer: TokenizerConfig = Characters()
    model: ModelChoice = ModelChoice(preset="bert-base", stacks=SMALL)


class Vowels(RecipeTask[VowelRecipe]):
    """p(number of vowels | word), by an encoder."""

    recipe = VowelRecipe
    files = Files("words", {"kind": "text", "paths": "--text", "documents": "line"})
    use = "predict {} word"
    main_score = "accuracy"
    higher_is_better = True

    def __init__(self, tokenizer: Tokenizer, train: Sequence[str], valid: Sequence[str], *, max_tokens: int) -> None:
        self.tokenizer, self.train, self.valid, self.max_tokens = tokenizer, train, valid, max_tokens

    def plan(self, *, seed: int, epoch: int) -> Sequence[Sequence[int]]:
        lengths = lengths_of(self.tokenizer.encode_batch(self.train))[:, None]
        return token_budget_batches(lengths, max_tokens=self.max_tokens, seed=seed, epoch=epoch)

    def collate(self, examples: Sequence[int]) -> Batch:
        words = [self.train[i] for i in examples]
        return Batch((inputs_of(self.tokenizer, words),), torch.tensor([*map(count, words)]))

    @classmethod
    def check_kind(cls, config: ModelConfig, *, where: str, remedy: str) -> None:
        if config.encoder is None or config.decoder is not None:
            raise UserError(f"{where}: expected an encoder alone to count vowels, got another model; {remedy}")

    def fit(self, config: ModelConfig) -> ModelConfig:
        self.check_kind(config, where="model", remedy="try preset bert-base")
        labels = tuple(str(n) for n in range(max(map(count, [*self.train, *self.valid])) + 1))
        head = ClassificationHead(n_labels=len(labels), labels=labels, pool="mean")
        return ModelConfig.model_validate({**dict(config), "head": head})

    def loss(self, network: Callable[..., Tensor], batch: Batch, *, smoothing: float = 0.0) -> tuple[Tensor, int]:
        return head_loss(network, batch, smoothing=smoothing)

    def evaluate(self, network: Transformer) -> Evaluation:
        valid = self.valid if self.few is None else [self.valid[i] for i in self.few.rows]
        said = answers(network, self.tokenizer, valid)
        right = [said == str(count(word)) for word, said in zip(valid, said, strict=True)]
        samples = (Sample(valid[0], said[0], str(count(valid[0]))),)
        return Evaluation((Score("accuracy", sum(right) / len(right), unit="0 to 1"),), samples)

    def sizes(self) -> Sequence[int]:
        return [*map(len, self.valid)]

    @classmethod
    def prepare(cls, recipe: VowelRecipe, tokenizer: Tokenizer | None) -> Prepared:
        words = {split: read_texts(source) for split, source in recipe.data.sources.items()}
        valid = words.get("valid", words["train"])
        tokenizer = tokenizer or Tokenizer.train(words["train"], recipe.tokenizer)
        task = cls(tokenizer, words["train"], valid, max_tokens=recipe.training.max_tokens)
        sha = {split: fingerprint([texts]) for split, texts in words.items()}
        return Prepared(
            task, Encoded(tokenizer, words["train"], valid, None, sha, f"data: {len(words['train'])} words")
        )

    @classmethod
    def measure(
        cls, model: Trained, recipe: VowelRecipe | None, source: Source | None, options: Mapping[str, Any]
    ) -> Evaluation:
        if source is None:
            assert recipe is not None
            source = recipe.data.sources.get("valid", recipe.data.sources["train"])
        words = read_texts(source)
        return cls(model.tokenizer, words, words, max_tokens=1).evaluate(model.network)

    @classmethod
    def predict(cls, model: Trained, texts: Sequence[str]) -> Iterator[Prediction]:
        for answer in answers(model.network, model.tokenizer, texts):
            yield Prediction(answer, {"vowels": answer})


def count(word: str) -> int:
    return sum(letter in "aeiou" for letter in word)


def inputs_of(tokenizer: Tokenizer, words: Sequence[str]) -> Tokens:
    return Tokens.pad(tokenizer.encode_batch(words), fill=tokenizer.pad_id or 0)


def answers(network: Transformer, tokenizer: Tokenizer, words: Sequence[str]) -> list[str]:
    head = network.config.head
    assert isinstance(head, ClassificationHead)
    with torch.inference_mode():
        return [head.labels[i] for i in network(inputs_of(tokenizer, words)).argmax(-1)]


# --- what users do with it ---------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As a line of the registry does; `words.toml` is a recipe of the task."""
    monkeypatch.setitem(TASKS, "vowels", f"{__name__}:Vowels")
    monkeypatch.chdir(tmp_path)
    words = [a + b + c for a in ("b", "ka", "lo") for b in ("t", "me", "ri") for c in ("s", "du", "ne", "ox")]
    Path("words.txt").write_text("\n".join(words), encoding="utf-8")
    Path("words.toml").write_text(
        'task = "vowels"\n[data]\ntrain = { kind = "text", documents = "line" }\n[training]\nsteps = 80\n'
        "max_tokens = 64\n"
        'precision = "fp32"\nmatmul_precision = "highest"\nevaluate_every = 20\ndevice = "cpu"\n'
        'optimizer = { kind = "adamw", lr = 1e-2 }\nschedule = { kind = "constant" }\n',
        encoding="utf-8",
    )


def tables(**changes: Any) -> dict[str, Any]:
    data = {"train": {"kind": "text", "paths": ["words.txt"], "documents": "line"}}
    settings = {"steps": 6, "save_every": 3, "precision": "fp32", "matmul_precision": "highest", "max_tokens": 64}
    return {"task": "vowels", "data": data, "training": {**settings, "device": "cpu"}, **changes}


def losses(events: Iterator[Any]) -> dict[int, float]:
    return {event.step: event.loss for event in events if isinstance(event, Stepped)}


def test_few_of_many_validation_examples_choose_and_all_judge(capsys: pytest.CaptureFixture[str]):
    few = ["--training.evaluate_examples", "5", "--steps", "20"]
    main(["train", "words.toml", "--text", "words.txt", "--out", "run", "--json", *few])
    said = capsys.readouterr()
    assert (
        said.err.count("evaluations: 5 of the 36 validation examples, always the same (training.evaluate_examples)")
        == 1
    )
    assert "the best checkpoint was chosen on 5 of the 36 validation examples" in said.err
    found = json.loads(said.out)
    assert round(5 * found["accuracy"], 9) % 1 == 0
    assert round(36 * found["held_out"]["accuracy"], 9) % 1 == 0
    main(["resume", "run", "--steps", "21", "--training.evaluate_examples", "all"])
    said = capsys.readouterr()
    assert "training.evaluate_examples: 5 -> all" in said.err
    assert "evaluations:" not in said.err
    assert "step 21  accuracy" in said.err
    assert "best" in next(line for line in said.err.splitlines() if line.startswith("step 21  accuracy"))


def test_a_checkpoint_to_start_from_gets_the_head_of_the_task():
    """As many labels as these data have; the rest of the network is that of the checkpoint."""
    run, _ = start(validate(tables(), where="x"), Path("first"))
    list(train(run))
    Path("words.txt").write_text("batu\nkos\nos\nbt\n" * 3, encoding="utf-8")
    run, _ = start(validate(tables(model={"start": "first"}), where="x"), Path("second"))
    before = dict(load("first").network.named_parameters())
    after = dict(run.network.named_parameters())
    assert after["head.output.weight"].shape == (3, 32)
    assert before["head.output.weight"].shape == (4, 32)
    torch.testing.assert_close(
        after["encoder.blocks.0.attn.q.weight"].detach(), before["encoder.blocks.0.attn.q.weight"]
    )
    assert {label for label, _ in load("first").classify(["bt"])[0]} == {"0", "1", "2", "3"}


def test_planned_and_profiled(capsys: pytest.CaptureFixture[str]):
    main(["plan", "words.toml", "--json"])
    assert json.loads(capsys.readouterr().out)["parameters"] > 0
    main(["profile", "words.toml", "--data.train.paths", '["words.txt"]', "--steps", "2", "--json"])
    assert json.loads(capsys.readouterr().out)["tokens"] > 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("train words.toml", "words.toml: expected words, got none; give --text FILE"),
        ("train words.toml --source a", "words.toml: expected words, got --source; give --text FILE"),
        (
            "train words.toml --text words.txt --task vowel",
            "words.toml:task: expected one of ",
        ),
        ("train words.toml --text words.txt --data.hold_out 3", "words.toml:data.hold_out: no such field"),
        ("train words.toml --text words.txt --model.preset nano", "model: expected an encoder alone to count vowels"),
    ],
)
def test_mistakes_are_one_line(words: str, told: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert told in error


class Letters(Vowels):
    """Vowels and other letters of a word, as a vector of two numbers."""

    def collate(self, examples: Sequence[int]) -> Batch:
        words = [self.train[i] for i in examples]
        vectors = torch.tensor([[count(word), len(word) - count(word)] for word in words], dtype=torch.float32)
        return Batch((inputs_of(self.tokenizer, words),), vectors)

    def fit(self, config: ModelConfig) -> ModelConfig:
        head = ClassificationHead(n_labels=2, pool="mean", problem_type="regression")
        return ModelConfig.model_validate({**dict(config), "head": head})

    def loss(self, network: Callable[..., Tensor], batch: Batch, *, smoothing: float = 0.0) -> tuple[Tensor, int]:
        return (network(*batch.inputs) - batch.labels).square().sum(), batch.count

    def evaluate(self, network: Transformer) -> Evaluation:
        return Evaluation((Score("accuracy", 0.0),))


def test_labels_may_be_vectors(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(TASKS, "vowels", f"{__name__}:Letters")
    settings = tables()["training"] | {"steps": 40, "precision": "auto", "schedule": {"kind": "constant"}}
    run, _ = start(validate(tables(training=settings), where="x"), Path("run"))
    found = losses(train(run))
    assert found[40] < 0.5 * found[1]


class Alphabet(Config):
    vowels: str = "aeiou"


class AlphabetRecipe(VowelRecipe):
    alphabet: Alphabet = Alphabet()


class InAlphabet(Vowels):
    """A task with a table of its own."""

    recipe = AlphabetRecipe


def test_a_table_of_its_own_is_set_on_the_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setitem(TASKS, "vowels", f"{__name__}:InAlphabet")
    main(["train", "words.toml", "--text", "words.txt", "--out", "run", "--steps", "1", "--alphabet.vowels", "aeiouy"])
    assert json.loads(Path("run/step-00000001/recipe.json").read_bytes())["alphabet"] == {"vowels": "aeiouy"}
    with pytest.raises(SystemExit):
        main(["train", "words.toml", "--text", "words.txt", "--out", "other", "--alphabet.vowel", "aeiouy"])
    assert "words.toml:alphabet.vowel: no such field; did you mean vowels?" in capsys.readouterr().err
