"""What others rely on changes with a line in the changelog, or not at all."""

from tests.surface import FILE, surface, unexplained


def test_what_others_rely_on_is_as_written() -> None:
    before, now = set(FILE.read_text(encoding="utf-8").splitlines()), set(surface())
    assert now == before, (
        f"gone: {sorted(before - now)}; new: {sorted(now - before)}: write it into CHANGELOG.md, then run"
        " `python -m tests.surface --write`"
    )


def test_what_goes_or_changes_is_named_in_the_newest_version() -> None:
    before = ["name a.load(name, *, device=)", "recipe Training.clip: number", "route GET /health", "name a.kept()"]
    now = ["name a.load(name, *, place=)", "name a.kept()", "name a.new()"]
    log = "# Changelog\n\n## [Unreleased]\n\n- `load` takes a `place`.\n\n## [1.0.0]\n\n- `/health`, `training.clip`.\n"
    assert unexplained(before, now, log) == ["recipe Training.clip: number", "route GET /health"]
    assert unexplained(before, now, log.replace("## [1.0.0]\n", "")) == []
