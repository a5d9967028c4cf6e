"""Judges the learner's functions, each alone: the others that it calls are the library's."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from traceback import extract_tb
from types import FrameType, ModuleType
from typing import Any, Literal

import torch
from torch import Tensor

from clearhead.errors import UserError
from clearhead.text.worker import failure, limit
from clearhead_lab.write.functions import Function, functions, names

DRAWS = 12
"""Hidden inputs of each function."""
GROWTH = 1.5
"""How much Python's work may grow where the sizes are multiplied by 4."""
SECONDS, LOADING = 20, 120
"""Seconds for a function, and for Python, PyTorch and the learner's file to start."""
MEMORY, CPU_SECONDS = 16 << 30, 600
"""Bounds of the process that runs the learner's functions: bytes of addresses, and seconds of CPU time."""
SEVERAL: tuple[type, ...] = (list, tuple)
Sign = Literal["✓", "·", "✗"]


@dataclass(frozen=True)
class Judgement:
    """What is said of a function."""

    function: str
    sign: Sign
    wrong: str = ""
    """The name of the wrong way."""
    says: str = ""


class _Source(SourceFileLoader):
    """Reads the source each time: Python takes the bytecode of a file that was as long a second ago for the new one."""

    def path_stats(self, path: str) -> dict[str, Any]:
        raise OSError(path)


def load(path: Path) -> ModuleType:
    """The learner's file as a module. Raises UserError if Python cannot run it."""
    source = _Source("transformer", str(path))
    spec = spec_from_loader("transformer", source)
    assert spec is not None
    module = module_from_spec(spec)
    try:
        source.exec_module(module)
    except (Exception, SystemExit) as error:
        line = error.lineno if isinstance(error, SyntaxError) else _line(error, str(path))
        raise UserError(f"{path}:{line}: expected Python that runs, got {failure(error)}; correct the line") from None
    return module


def check(path: Path, *, seconds: float = SECONDS) -> Iterator[Judgement]:
    """Judges each function in a process of its own, which an endless function does not survive.

    Raises UserError if the file cannot be loaded.
    """
    left = [function.name for function in functions().function]
    while left:
        here, there = get_context("spawn").Pipe(duplex=False)
        process = get_context("spawn").Process(target=_answer, args=(path, left, there), daemon=True)
        process.start()
        there.close()
        try:
            problem = here.recv() if here.poll(LOADING) else "it does not end"
            if problem:
                raise UserError(problem)
            while left and here.poll(seconds):
                yield here.recv()
                left.pop(0)
            wrong = "endless"
        except EOFError:
            wrong = "ended"
        finally:
            process.kill()
            process.join()
        if left:
            yield _general(left.pop(0), wrong)


def _answer(path: Path, wanted: Sequence[str], there: Connection) -> None:
    """The process: sends "" once the file is loaded, or the problem; then the judgement of each function."""
    limit(MEMORY, CPU_SECONDS)
    torch.set_num_threads(1)
    with Path(os.devnull).open("w", encoding="utf-8") as sys.stdout:
        try:
            mine = load(path)
        except UserError as error:
            there.send(str(error))
            return
        there.send("")
        for function in functions().function:
            if function.name in wanted:
                there.send(judge(function, mine))


def judge(function: Function, mine: ModuleType) -> Judgement:
    """Judges one function of the learner's module."""
    own, before = getattr(mine, function.name, None), dict(vars(mine))
    if own is None:
        return _general(function.name, "missing")
    vars(mine).update({one.name: names()[one.name] for one in functions().function if one is not function})
    try:
        return _judge(function, own, str(mine.__file__))
    except NotImplementedError:
        return Judgement(function.name, "·", "todo", functions().general["todo"])
    except (Exception, SystemExit) as error:
        says = f"{Path(str(mine.__file__)).name}:{_line(error, str(mine.__file__))}: {failure(error)}"
        return Judgement(function.name, "✗", "raised", says)
    finally:
        vars(mine).clear()
        vars(mine).update(before)


def _judge(function: Function, own: Callable[..., Any], path: str) -> Judgement:
    drawn, results = list[list[Any]](), list[Any]()
    for seed in range(DRAWS):
        inputs = function.inputs(seed)
        drawn.append(deepcopy(inputs))
        results.append(own(*inputs))
        if not same(inputs, drawn[-1]):
            return _general(function.name, "in-place")
    right = names()[function.name]
    expected = [right(*inputs) for inputs in drawn]
    if all(map(same, results, expected)):
        flaw = _flaw(function, own, drawn, path)
        return Judgement(function.name, "✓") if flaw is None else _general(function.name, flaw)
    for wrong, text, says in function.wrong:
        if _computes(function.written(text), drawn, results):
            return Judgement(function.name, "✗", wrong, says)
    for wrong, axis, those in (("batch", 0, function.rows), ("causal", 1, function.causal)):
        if those and _leaks(own, function, axis, those):
            return _general(function.name, wrong)
    apart = next(pair for pair in zip(results, expected, strict=True) if not same(*pair))
    return Judgement(function.name, "✗", "value", _difference(*apart))


def _general(name: str, wrong: str) -> Judgement:
    return Judgement(name, "✗", wrong, functions().general[wrong])


def _computes(way: Callable[..., Any], drawn: Sequence[Sequence[Any]], results: Sequence[Any]) -> bool:
    """Returns True if this way gives these results."""
    with suppress(Exception):
        return all(same(result, way(*inputs)) for inputs, result in zip(drawn, results, strict=True))
    return False


def _flaw(function: Function, own: Callable[..., Any], drawn: Sequence[list[Any]], path: str) -> str | None:
    """What is wrong with a function whose values are right."""
    for inputs in drawn if function.gradient else ():
        expected = _gradients(names()[function.name], inputs)
        if expected is not None:
            gradients = _gradients(own, inputs)
            if gradients is None or not same(gradients, expected):
                return "detached" if gradients is None else "gradient"
    if function.speed:
        small, large = (_work(own, function.inputs(0, times=times), path) for times in (1, 4))
        return "loop" if large > GROWTH * small else None
    return None


def _leaks(own: Callable[..., Any], function: Function, axis: int, those: Sequence[str]) -> bool:
    """Returns True if the last place on an axis of these parameters changes the results before it."""
    inputs = function.inputs(0)
    other = deepcopy(inputs)
    for name in those:
        other[list(function.draw).index(name)].select(axis, -1).normal_()
    a, b = own(*inputs), own(*other)
    if not isinstance(a, Tensor) or a.dim() <= axis:
        return False
    return not same(*(x.narrow(axis, 0, x.shape[axis] - 1) for x in (a, b)))


def same(a: Any, b: Any) -> bool:
    """Returns True if a is b up to rounding. Functions are not compared."""
    if isinstance(b, Tensor):
        alike = isinstance(a, Tensor) and a.shape == b.shape and _kind(a) == _kind(b)
        return alike and torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-5, equal_nan=True)
    if isinstance(b, dict):
        return isinstance(a, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in b)
    if isinstance(b, SEVERAL):
        return isinstance(a, SEVERAL) and len(a) == len(b) and all(map(same, a, b))
    return callable(b) or (isinstance(a, type(b)) and a == b)


def _kind(x: Tensor) -> str:
    return "bool" if x.dtype == torch.bool else "numbers" if x.is_floating_point() else "integers"


def _leaves(value: Any) -> list[Tensor]:
    """The tensors of floating-point numbers in a value."""
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() else []
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, SEVERAL) else ()
    return [leaf for part in parts for leaf in _leaves(part)]


def _gradients(function: Callable[..., Any], inputs: list[Any]) -> list[Tensor] | None:
    """The gradients of all inputs, of a weighted sum of the results; None if none reaches them."""
    inputs = deepcopy(inputs)
    leaves = [leaf.requires_grad_() for leaf in _leaves(inputs)]
    results = [x.nan_to_num(0.0, 0.0, 0.0) for x in _leaves(function(*inputs)) if x.requires_grad]
    if not results:
        return None
    sums = [(x.flatten() * torch.arange(x.numel()).cos()).sum() for x in results]
    return list(torch.autograd.grad(sums, leaves, allow_unused=True, materialize_grads=True))


def _work(own: Callable[..., Any], inputs: Sequence[Any], path: str) -> int:
    """Steps of Python's machine in the learner's file."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if frame.f_code.co_filename != path:
            return None
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        own(*inputs)
    finally:
        sys.settrace(before)
    return count


def _difference(result: Any, expected: Any) -> str:
    """Where a result differs from what is expected, and how."""
    if isinstance(expected, dict) and isinstance(result, dict) and result.keys() == expected.keys():
        return _difference([result[key] for key in expected], tuple(expected.values()))
    if isinstance(expected, tuple) and isinstance(result, SEVERAL) and len(result) == len(expected):
        return next(_difference(*pair) for pair in zip(result, expected, strict=True) if not same(*pair))
    if isinstance(expected, list):
        return f"Expected {expected}, got {str(result)[:200]}."
    if not isinstance(result, Tensor) or not isinstance(expected, Tensor):
        return f"Expected {type(expected).__name__}, got {type(result).__name__}."
    if result.shape != expected.shape:
        return f"Expected the shape {list(expected.shape)}, got {list(result.shape)}."
    if _kind(result) != _kind(expected):
        return f"Expected {_kind(expected)}, got {_kind(result)}."
    close = torch.isclose(result.double(), expected.double(), rtol=1e-4, atol=1e-5, equal_nan=True)
    at = tuple((~close).nonzero()[0].tolist())
    return f"At {list(at)}: expected {expected[at].item():.4g}, got {result[at].item():.4g}."


def _line(error: BaseException, path: str) -> int:
    """The last line of the learner's file that an error went through."""
    return next((frame.lineno or 0 for frame in reversed(extract_tb(error.__traceback__)) if frame.filename == path), 0)
