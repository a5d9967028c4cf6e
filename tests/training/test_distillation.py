"""Learning from another network's answers."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from clearhead.api import Model
from clearhead.errors import UserError
from clearhead.recipe.training import Teacher
from clearhead.runs import resume, start
from clearhead.tasks.registry import validate
from clearhead.training.distillation import Distillation
from tests.training.tiny import GENERATION, SMALL, drive, language, losses, new_network, state, tables, translation


@pytest.mark.parametrize("packed", [True, False])
def test_the_loss_is_the_definition(packed: bool) -> None:
    """Over each real position, in float64."""
    task = translation(packed=packed)
    student, teacher = (new_network(task, seed=seed, dropout=0.0).double() for seed in (0, 1))
    batch = task.collate(range(6))
    config = Teacher(start="x", temperature=3.0, weight=0.3)
    found, count = Distillation(student, teacher, config).loss(task, batch, smoothing=0.1)
    assert count == batch.count
    plain = translation(packed=False).collate(range(6))
    valid = plain.inputs[1].valid
    s, t = (one(*plain.inputs).detach() for one in (student, teacher))
    s, t = (x if valid is None else x[valid] for x in (s, t))
    p, q = (t / 3).softmax(-1), (s / 3).softmax(-1)
    expected = 0.7 * F.cross_entropy(s, plain.labels, label_smoothing=0.1, reduction="sum")
    expected += 0.3 * 9 * (p * (p / q).log()).sum()
    torch.testing.assert_close(found.detach().double(), expected, rtol=1e-6, atol=0)
    found.backward()
    assert all(p.grad is None for p in teacher.parameters())
    assert all(p.grad is not None for p in student.parameters())


def taught(**training: Any) -> dict[str, Any]:
    """A new translator that learns from the one in the folder `teacher`."""
    teacher = {"teacher": {"start": str(Path.cwd() / "teacher")}, **training}
    return tables("teacher", model={"preset": "demo", "stacks": SMALL}, training=teacher)


@pytest.fixture
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_in_a_folder")
def test_a_new_network_takes_the_teachers_tokenizer_and_resumes() -> None:
    run, prepared = start(validate(taught(), where="x"), Path("whole"))
    assert prepared.data.vocab_size == translation().tokenizer.vocab_size
    whole = losses(drive(run))
    drive(start(validate(taught(steps=2), where="x"), Path("part"))[0])
    again, _ = resume(Path("part"), changes={"steps": 4})
    assert losses(drive(again)) == {step: loss for step, loss in whole.items() if step > 2}
    assert state(again) == state(run)
    alone = start(validate(taught(teacher=None), where="x"), Path("alone"))[0]
    assert losses(drive(alone)) != whole


@pytest.mark.usefixtures("_in_a_folder")
def test_a_teacher_of_another_task_is_refused() -> None:
    task = language()
    Model(new_network(task), task.tokenizer, GENERATION).save("lm")
    with pytest.raises(
        UserError, match=r"training.teacher: .*lm: expected language by encoder and decoder with \d+ answers"
    ):
        start(validate(taught(teacher={"start": "lm"}), where="x"), Path("run"))
