"""Commands of other packages: that of the guide, one that is broken, and an App."""

import json
from pathlib import Path

import pytest

from clearhead.recipe.tokenizers import ByteBPE
from clearhead.text.tokenizers import Tokenizer
from tests.examples.packages import follow, run
from tests.small_models import TEXTS, model_of


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A folder with the guide's command, one that cannot be loaded and an App."""
    place = tmp_path_factory.mktemp("command")
    model_of("nano", Tokenizer.train([*TEXTS, *["one king"] * 50], ByteBPE(vocab_size=400))).save(place / "gpt2")
    follow("command", place)
    folder = place / "site"
    code = ("from cyclopts import App", "claims = App(name='claims', help='Claims.', group='Learn')")
    (folder / "other.py").write_text("\n".join((*code, "claims.command(print, name='say')")))
    about = folder / "other-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[clearhead.commands]\nbroken = nowhere:x\nclaims = other:claims\n")
    return folder


def test_command_of_another_package(site: Path):
    folder = site.parent / "gpt2"
    code, said = run("-m", "clearhead", "neighbours", str(folder), "one", "--top", "3", "--json", path=site)
    assert code == 0, said
    cosines = json.loads(said)
    assert len(cosines) == 3
    assert "one" not in cosines
    assert sorted(cosines.values(), reverse=True) == list(cosines.values())
    code, said = run("-m", "clearhead", "neighbours", str(folder), "one two", path=site)
    assert (code, said) == (2, "error: one two: expected one token, got 2; try a shorter word\n")
    code, said = run("-m", "clearhead", "neighbours", "--help", path=site)
    assert "Tokens to list." in said


def test_broken_command_is_one_line_and_stops_no_other(site: Path):
    code, said = run("-m", "clearhead", path=site)
    assert code == 0
    assert "added" in said
    assert {"neighbours", "broken", "claims"} <= {*said.split()}
    code, said = run("-m", "clearhead", "help", path=site)
    assert code == 0
    groups = said.partition("From other packages")
    assert "neighbours" in groups[2]
    assert "expected broken at nowhere:x" in " ".join(groups[2].split())
    assert "Claims." in groups[0].partition("Learn")[2], "an App names its group"
    code, said = run("-m", "clearhead", "broken", path=site)
    assert (code, said.count("\n")) == (2, 1)
    assert said.startswith("error: clearhead.commands: expected broken at nowhere:x, got No module named 'nowhere'")
    assert run("-m", "clearhead", "claims", "say", path=site) == (0, "\n")
    assert run("-m", "clearhead", "summary", "gpt2", path=site)[0] == 0


def test_command_of_a_package_that_is_not_installed():
    code, said = run("-c", "from clearhead.cli.learn import lab; lab()")
    assert code == 1
    assert said.endswith("lab: expected the package clearhead-lab, got none; pip install ../clearhead/lab\n")
