"""Every property that any mechanism has, for one more: `test_it = properties_of({"positions": ...})`."""

import inspect
from collections.abc import Callable, Collection
from typing import Any

import pytest

from clearhead.model import attention
from clearhead.model.summary import summarize
from tests.model import small, test_properties


def costs_are_what_autograd_keeps(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for explicit_up_to in (100, 0):
        monkeypatch.setattr(attention, "EXPLICIT_UP_TO", explicit_up_to)
        network = small.encoder_decoder(**changes).train()
        kept = small.kept_bytes(network, [small.ids(2, 7), small.ids(2, 6, seed=1)])
        found = summarize(network.config, batch=2, source_length=7, target_length=6)
        assert found.activation_bytes == kept


PROPERTIES = [
    costs_are_what_autograd_keeps,
    *(
        value
        for name, value in vars(test_properties).items()
        if name.startswith("test_") and "changes" in inspect.signature(value).parameters
    ),
]


def properties_of(*mechanisms: dict[str, Any], but: Collection[str] = ()) -> Callable[..., None]:
    """A test of each property for each of these changes of a small stack, but for those of these names."""
    properties = [one for one in PROPERTIES if one.__name__.removeprefix("test_") not in but]

    @pytest.mark.parametrize("changes", mechanisms)
    @pytest.mark.parametrize("holds", properties, ids=[one.__name__.removeprefix("test_") for one in properties])
    def test_property(holds: Callable[..., None], changes: dict[str, Any], monkeypatch):
        wants_patch = "monkeypatch" in inspect.signature(holds).parameters
        holds(changes, **{"monkeypatch": monkeypatch} if wants_patch else {})

    return test_property
