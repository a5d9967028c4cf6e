"""The guide's family: opened from a folder of the reference library, saved, summarised, and missed by name."""

from tests.examples.packages import follow, run
from tests.later import later

later("transformers")


def test_it_is_used_as_our_own(tmp_path):
    assert "True True" in follow("family", tmp_path)
    theirs = str(tmp_path / "theirs")
    code, output = run("-m", "clearhead", "check", theirs, path=tmp_path / "site")
    assert code == 0, output
    code, output = run("-m", "clearhead", "check", theirs)
    assert (code, "got 'openai-gpt'" in output) == (2, True), "without the package"
