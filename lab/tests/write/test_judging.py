"""The judge of `clearhead lab write`: right solutions, wrong ways by their names, random programs, and the process."""

import ast
import random
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import torch

from clearhead.errors import UserError
from clearhead_lab.write.functions import file_text, functions
from clearhead_lab.write.judging import Judgement, check, judge, load, same

HERE = Path(__file__).parent
SOLUTION = (HERE / "solution.py").read_text(encoding="utf-8")
FUNCTIONS = {function.name: function for function in functions().function}
LINES = {
    node.name: ast.get_source_segment(SOLUTION, node) or ""
    for node in ast.parse(SOLUTION).body
    if isinstance(node, ast.FunctionDef)
}
WRONG = [
    (name, *way)
    for name, ways in tomllib.loads((HERE / "wrong_ways.toml").read_text(encoding="utf-8")).items()
    for way in ways
]


def module_of(name: str, text: str, folder: Path) -> ModuleType:
    """The solution with another text of one function."""
    path = folder / "transformer.py"
    path.write_text(SOLUTION.replace(LINES[name], text), encoding="utf-8")
    return load(path)


def test_every_solution_is_right_and_short():
    module = load(HERE / "solution.py")
    judgements = [judge(function, module) for function in FUNCTIONS.values()]
    assert [one for one in judgements if one.sign != "✓"] == []
    assert len(judgements) == 29
    assert max(len(LINES[name].splitlines()) for name in FUNCTIONS) <= 15


def test_wrong_ways_are_named(tmp_path):
    others: list[str] = []
    for name, old, new, expected in WRONG:
        assert old in LINES[name], (name, old)
        judgement = judge(FUNCTIONS[name], module_of(name, LINES[name].replace(old, new), tmp_path))
        assert judgement.sign == "✗", (name, new)
        assert judgement.says
        if judgement.wrong != expected:
            others.append(f"{name}: {new!r}: expected {expected}, got {judgement.wrong}: {judgement.says}")
    print(f"{len(WRONG) - len(others)} of {len(WRONG)} wrong ways named rightly", *others, sep="\n")
    assert others == []


def test_every_named_way_differs_from_what_is_right_and_from_its_neighbours():
    for function in FUNCTIONS.values():
        drawn = [function.inputs(seed) for seed in range(12)]
        ways = [
            ("right", function.written(function.right)),
            *((way[0], function.written(way[1])) for way in function.wrong),
        ]
        results = {name: [attempt(way, inputs) for inputs in drawn] for name, way in ways}
        names = list(results)
        alike = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :] if same(results[a], results[b])]
        assert alike == [], function.name


def attempt(way, inputs):
    try:
        return way(*inputs)
    except Exception as error:
        return str(error)


PROGRAMS = (
    lambda rng, right: lambda *inputs: rng.choice(inputs),
    lambda rng, right: lambda *inputs: right(*rng.sample(inputs, len(inputs))),
    lambda rng, right: lambda *inputs: changed(right(*inputs), torch.zeros_like),
    lambda rng, right: lambda *inputs: changed(right(*inputs), lambda x: torch.rand(x.shape)),
    lambda rng, right: lambda *inputs: changed(right(*inputs), lambda x: x.flip(-1) if x.dim() else -x),
    lambda rng, right: lambda *inputs: changed(right(*inputs), lambda x: x * rng.uniform(0.5, 0.9)),
    lambda rng, right: lambda *inputs: changed(right(*inputs), lambda x: x[None]),
    lambda rng, right: lambda *inputs: rng.choice((None, 0, "a", [], {}, torch.zeros(2, 3))),
)


def changed(value, by):
    if isinstance(value, torch.Tensor):
        return by(value)
    if isinstance(value, dict):
        return {key: changed(one, by) for key, one in value.items()}
    if isinstance(value, tuple):
        return tuple(changed(one, by) for one in value)
    return [*value, value] if isinstance(value, list) else by(torch.tensor(float(value)))


def test_no_random_program_is_accepted():
    rng, accepted = random.Random(0), list[tuple[str, int]]()
    for _ in range(200):
        function = rng.choice(list(FUNCTIONS.values()))
        which = rng.randrange(len(PROGRAMS))
        module = ModuleType("transformer")
        module.__file__ = "transformer.py"
        if which == 1 and len(function.draw) == 1:
            which = 0
        setattr(module, function.name, PROGRAMS[which](rng, function.written(function.right)))
        if judge(function, module).sign == "✓":
            accepted.append((function.name, which))
    print(f"{len(accepted)} of 200 random programs accepted")
    assert accepted == []


def test_endless_and_ending_functions_do_not_end_the_judge(tmp_path):
    path = tmp_path / "transformer.py"
    text = file_text()
    for name, body in (
        ("merge_pair", "while True: pass"),
        ("encode", "__import__('os')._exit(0)"),
        ("embed", "exit()"),
    ):
        before, _, after = text.partition(f"def {name}(")
        text = f"{before}def {name}({after.replace('raise NotImplementedError', body, 1)}"
    path.write_text(text.replace("def linear(", "def linen("), encoding="utf-8")
    judgements = {one.function: one for one in check(path, seconds=6)}
    assert [judgements[name].wrong for name in ("merge_pair", "encode", "embed", "linear", "softmax")] == [
        "endless", "ended", "raised", "missing", "todo",
    ]  # fmt: skip
    assert judgements["softmax"] == Judgement("softmax", "·", "todo", "not yet written")
    assert list(judgements) == list(FUNCTIONS)


@pytest.mark.parametrize(
    ("text", "what"),
    [("def a(:\n", r":1: expected Python that runs, got SyntaxError"), ("\nimport nothing_here\n", ":2: .*No module")],
)
def test_a_file_that_does_not_load_is_told_in_one_line(tmp_path, text, what):
    (tmp_path / "transformer.py").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=what):
        list(check(tmp_path / "transformer.py"))
