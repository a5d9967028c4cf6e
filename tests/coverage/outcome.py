"""What becomes of one config: the reference's random model, opened by us, and how far apart the two are."""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from clearhead.analysis.comparison import CLOSE, LOGITS, Difference, differences, reference_states, states
from clearhead.api import Model, load
from clearhead.config import ModelConfig
from clearhead.errors import UserError
from tests.coverage.folders import told
from tests.parity.harness import Case, inputs, reference, sides

What = Literal["close", "refused", "no reference", "different", "traceback"]
"""close: equal logits and states. refused: one line by us. no reference: the reference library builds or runs no such
model. different, traceback: errors of ours."""
WRONG: tuple[What, ...] = ("different", "traceback")


@dataclass(frozen=True)
class Outcome:
    """What became of one config."""

    what: What
    told: str = ""
    """The refusal, the error, or where the largest difference is."""
    gap: float = 0.0
    """The largest difference of the logits."""
    theirs: tuple[Tensor, ...] = ()
    """The reference's logits."""
    config: ModelConfig | None = None
    """What we made of the config."""


def outcome(case: Case, folder: Path, *, as_given: bool = False) -> Outcome:
    """Builds the reference at random, opens it here and compares all states. `folder` is new or may be overwritten.

    `as_given` writes the config with the fields of the case alone, as older libraries would, instead of the file that
    the reference writes.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            theirs = reference(case)
            theirs.save_pretrained(folder)
        except Exception as error:  # a config at random may raise anything there
            return Outcome("no reference", told(error))
        if as_given:
            document = {**case.config, "model_type": case.family, "architectures": [case.architecture]}
            (folder / "config.json").write_text(json.dumps(document), encoding="utf-8")
        try:
            ours = load(folder)
        except UserError as error:
            return Outcome("refused", str(error).removeprefix(str(folder)).lstrip("/"))
        except Exception as error:
            return Outcome("traceback", f"load: {told(error)}")
        return compared(case, theirs, ours)


def compared(case: Case, theirs: Any, ours: Model) -> Outcome:
    """All states of a batch with padding on each side that the model allows."""
    pad = theirs.config.to_dict().get("pad_token_id")
    if isinstance(pad, int) and 0 <= pad < 8:
        case = replace(case, pad=pad)
    gap, logits = 0.0, list[Tensor]()
    for left in sides(ours):
        try:
            batch = inputs(case, theirs, left=left)
            expected = reference_states(theirs, batch.theirs, ours.network)
            if not all(bool(value.isfinite().all()) for value in expected.values()):
                return Outcome("no reference", "not finite")
            worst, of_logits = _worst(differences(states(ours.network, batch.ours), expected, batch.ours))
            if not worst.relative <= CLOSE:
                with doubled(theirs, ours):
                    again = inputs(case, theirs, left=left)
                    expected = reference_states(theirs, again.theirs, ours.network)
                    worst, _ = _worst(differences(states(ours.network, again.ours), expected, again.ours))
        except Exception as error:
            return Outcome("traceback" if runs(theirs, case, left) else "no reference", f"compare: {told(error)}")
        if not worst.relative <= CLOSE:
            return Outcome("different", f"{worst.address}: {worst.largest:.1e} ({worst.relative:.1e})", worst.largest)
        gap = max(gap, of_logits)
        logits.append(expected[LOGITS])
    return Outcome("close", gap=gap, theirs=tuple(logits), config=ours.config)


def runs(theirs: Any, case: Case, left: bool) -> bool:
    """Whether the reference computes anything at all."""
    try:
        with torch.no_grad():
            theirs(**inputs(case, theirs, left=left).theirs)
    except Exception:
        return False
    return True


@contextmanager
def doubled(theirs: Any, ours: Model) -> Iterator[None]:
    """Both in float64, where rounding explains no difference; also where a module casts to float32 by itself."""

    class Wide(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is Tensor.float:
                return args[0].double()
            wide = [torch.float64 if one is torch.float32 else one for one in args]
            named = {k: torch.float64 if v is torch.float32 else v for k, v in (kwargs or {}).items()}
            return func(*wide, **named)

    theirs.double()
    ours.network.double()
    with Wide():
        yield
    theirs.float()
    ours.network.float()


def _worst(found: list[Difference]) -> tuple[Difference, float]:
    """The largest difference of all, where not a number is larger than any, and the largest of the logits."""
    worst = max(found, key=lambda one: float("inf") if one.relative != one.relative else one.relative)
    return worst, max(one.largest for one in found if one.address == LOGITS)
