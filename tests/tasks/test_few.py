"""An evaluation of few validation examples measures exactly these, in every task."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clearhead.cli import main
from clearhead.model import Transformer
from clearhead.progress import watching
from clearhead.recipe.data import Infilling
from clearhead.tasks.evaluation import LEAST, TOKENS, Evaluation, Few, few_of
from clearhead.tasks.task import RecipeTask
from tests.tasks import small
from tests.tasks import test_chat as chat
from tests.tasks import test_classification as classification
from tests.tasks import test_denoising as denoising
from tests.tasks import test_embedding as embedding
from tests.tasks import test_image_classification as images
from tests.tasks import test_masked_lm as masked_lm
from tests.tasks import test_question_answering as answers
from tests.tasks import test_tagging as tagging
from tests.tasks import test_text_to_text as text_to_text
from tests.training.tiny import language, translation


def documents() -> Any:
    from clearhead.tasks.language_model import LanguageModel
    from tests.training.tiny import GENERATION, number_pairs, text_of

    one = language()
    text = text_of(number_pairs(20).source, one.tokenizer)
    return LanguageModel(one.tokenizer, text, text, length=12, max_tokens=48, generation=GENERATION)


MAKERS: dict[str, tuple[Callable[[], Any], str, Callable[[Any, Sequence[int]], float]]] = {
    "classification": (classification.task_of, "classifier", lambda _, r: len(r)),
    "tagging": (
        lambda: tagging.task_of(limit=6),
        "classifier",
        lambda task, r: sum(len(task.valid.examples[i].words) for i in r),
    ),
    "answers": (lambda: answers.task_of(limit=14), "classifier", lambda _, r: len(r)),
    "images": (images.task_of, "image-classifier", lambda _, r: len(r)),
    "translation": (translation, "demo", lambda task, r: sum(len(task.valid.target[i]) + 1 for i in r)),
    "text to text": (text_to_text.task_of, "demo", lambda task, r: sum(len(task.valid.target[i]) + 1 for i in r)),
    "running text": (language, "nano", lambda task, r: sum(task.valid.sizes[i] for i in r)),
    "documents": (documents, "nano", lambda task, r: sum(task.valid.sizes[i] for i in r)),
    "masked": (masked_lm.task_of, "classifier", lambda task, r: task.valid.batch(r).count),
    "denoising": (
        lambda: denoising.task_of(Infilling()),
        "demo",
        lambda task, r: task.pairs.batch(*task.valid.pairs(r)).count,
    ),
    "chat": (chat.task_of, "nano", lambda task, r: sum(task.valid.turns[i].n_trained for i in r)),
}


def network_of(task: RecipeTask[Any], preset: str) -> Transformer:
    network = small.network_of(task, preset).float()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return network


def evaluated(task: RecipeTask[Any], network: Transformer, rows: Sequence[int] | None) -> Evaluation:
    task.few = None if rows is None else Few(rows, len(task.sizes()))
    return task.evaluate(network)


@pytest.mark.parametrize("name", MAKERS)
def test_two_parts_have_the_loss_of_the_whole(name: str):
    make, preset, weight = MAKERS[name]
    task = make()
    network, sizes = network_of(task, preset), task.sizes()
    assert len(sizes) > 2
    assert min(sizes) > 0
    parts = [*range(0, len(sizes), 3)], [i for i in range(len(sizes)) if i % 3]
    whole = evaluated(task, network, None)
    found = [evaluated(task, network, rows) for rows in parts]
    weights = np.array([weight(task, rows) for rows in parts])
    assert np.average([one.loss for one in found], weights=weights) == pytest.approx(whole.loss, rel=1e-5)
    assert found[0].loss != pytest.approx(whole.loss, rel=1e-4)
    if whole.examples:
        for one, rows in zip(found, parts, strict=True):
            assert [e.source for e in one.examples] == [whole.examples[i].source for i in rows]
            assert [e.output for e in one.examples] == [whole.examples[i].output for i in rows]
            assert [e.error for e in one.examples] == pytest.approx([whole.examples[i].error for i in rows], rel=1e-3)


def test_few_pairs_are_candidates_of_each_other_alone():
    task = embedding.task_of(embedding.TRIPLES)
    network = network_of(task, "classifier")
    rows = [1, 2, 5, 11]
    alone = embedding.task_of([embedding.TRIPLES[i] for i in rows])
    assert evaluated(task, network, rows).scores == evaluated(alone, network, None).scores
    assert task.valid.take(rows).lengths == alone.valid.lengths


@pytest.mark.parametrize(
    ("sizes", "most", "n"),
    [
        ([20] * 3000, "auto", None),
        ([TOKENS] * LEAST, "auto", None),
        ([TOKENS] * (LEAST + 1), "auto", LEAST),
        ([100] * 20_000, "auto", TOKENS // 100),
        ([100] * 20_000, "all", None),
        ([100] * 20_000, 300, 300),
        ([100] * 300, 300, None),
    ],
)
def test_how_many(sizes: list[int], most: Any, n: int | None):
    few = few_of(sizes, most)
    assert (few and len(few.rows)) == n
    assert few is None or (few.rows == sorted({*few.rows}) and few.n == len(sizes))


def test_a_smaller_choice_is_a_part_of_a_larger_one():
    small, large = few_of([1] * 100, 10), few_of([1] * 100, 30)
    assert small
    assert large
    assert {*small.rows} < {*large.rows}
    assert str(large) == "30 of the 100 validation examples"


def test_an_evaluation_tells_how_far_it_is():
    task = translation()
    told: list[tuple[str, int, int]] = []
    with watching(lambda what, done, n: told.append((what, done, n))):
        evaluated(task, network_of(task, "demo"), None)
    for what in ("writing", "reading"):
        turns = [(done, n) for said, done, n in told if said == what]
        n = turns[0][1]
        assert turns == [(i, n) for i in range(n + 1)]
    n_told = len(told)
    evaluated(task, network_of(task, "demo"), None)
    assert len(told) == n_told


def test_few_choose_the_best_checkpoint_and_all_judge(
    capsys,
):
    for name in ("table.csv", "valid.csv"):
        classification.write_table(Path(name), classification.rows())
    few = "--training.evaluate_examples 5 --training.evaluate_every 20 --training.max_tokens 64 --steps 20"
    figures, lines = small.trained(f"table.csv --valid-data valid.csv {few}", capsys)
    assert lines.count("evaluations: 5 of the 36 validation examples, always the same") == 1
    assert "the best checkpoint was chosen on 5 of the 36 validation examples" in lines
    assert round(5 * figures["accuracy"], 9) % 1 == 0
    assert round(36 * figures["held_out"]["accuracy"], 9) % 1 == 0
    main(["resume", "run", "--steps", "21", "--training.evaluate_examples", "all"])
    printed = capsys.readouterr().err
    assert "training.evaluate_examples: 5 -> all" in printed
    assert "evaluations:" not in printed
    assert "best" in next(line for line in printed.splitlines() if line.startswith("step 21  accuracy"))
