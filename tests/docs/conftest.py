"""The small models and runs that stand in the place of those which the documents name."""

from pathlib import Path

import pytest

from clearhead.data.prompts import BUNDLED, prompts_in
from clearhead.recipe.data import Spans
from clearhead.recipe.tokenizers import Words
from clearhead.tasks.denoising import extended_for
from clearhead.text.tokenizers import Tokenizer
from tests.api.test_spelling import labelled
from tests.docs.running import TABLES
from tests.small_models import TEXTS, model_of, towers
from tests.small_pictures import pictured
from tests.test_pipelines_page import MAKERS as PIPELINES

SETS = [
    *("In Rome Paris London Tom Ben Anna Lucy Mary met".split()),
    *(" ".join([*prompt.texts, f"{prompt.answer} {prompt.minus}"]) for each in BUNDLED for prompt in prompts_in(each)),
]
"""The words of the sets of prompts."""
MAKERS = {**PIPELINES, "spans": lambda: model_of("demo", extended_for(Spans(), Tokenizer.train(TEXTS, Words())))}
MAKERS["story"] = lambda: model_of("nano", Tokenizer.train([*TEXTS, *SETS], Words()))
WRITERS = {"moments": labelled, "llava": pictured}


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for kind in {kind for kind in TABLES["checkpoints"].values() if isinstance(kind, str)}:
        if kind in WRITERS:
            WRITERS[kind](folder / kind)
        else:
            (towers if kind == "towers" else MAKERS[kind])().save(folder / kind)
    return folder


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("runs")
