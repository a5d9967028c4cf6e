"""A run that is resumed has the losses of one that never stopped."""

from collections.abc import Callable
from typing import Any

import pytest

from clearhead.recipe.data import Infilling, Spans
from tests.tasks import test_beginning as beginning
from tests.tasks import test_chat as chat
from tests.tasks import test_denoising as denoising
from tests.tasks import test_masked_lm as masked_lm
from tests.tasks import test_text_to_text as text_to_text
from tests.tasks.small import check_resumed
from tests.tasks.test_classification import rows

ROWS = [{"text": text, "label": label} for text, label in rows()]
CASES: dict[str, tuple[Callable[[], None], Callable[[], dict[str, Any]]]] = {
    "chat": (chat.write_data, chat.tables),
    "masked": (masked_lm.write_data, masked_lm.tables),
    "text to text": (text_to_text.write_data, text_to_text.tables),
    "spans": (denoising.write_data, lambda: denoising.tables(Spans())),
    "words": (lambda: None, lambda: beginning.recipe(ROWS)),
    "infilling": (denoising.write_data, lambda: denoising.tables(Infilling())),
}


@pytest.mark.parametrize("name", CASES)
def test_resumed(name: str):
    write, tables = CASES[name]
    write()
    check_resumed(tables(), 4)
