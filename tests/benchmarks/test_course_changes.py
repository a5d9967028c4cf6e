"""The benchmark of the course's checks notices what the build notices, and nothing else."""

from benchmarks.course_changes import Change, unnoticed
from clearhead_lab.course import site, values
from clearhead_lab.course.running import run

PAGE = """# A title

```python
x = [7, 5]
y = 0 * 3
```

The first is {{7 = x[0]}}.
"""


def test_only_a_neutral_change_is_not_noticed(tmp_path, monkeypatch):
    accepted = run("page", PAGE, tmp_path).values
    monkeypatch.setattr(site, "source", lambda _: PAGE)
    monkeypatch.setattr(values, "read", lambda _: accepted)
    made = [
        Change("page", "digit", at, at + 1, "9")
        for at in (PAGE.index("7, 5"), PAGE.index("5]"), PAGE.index("3\n"), PAGE.index("7 ="))
    ]
    assert [one.start for one in unnoticed("page", made, tmp_path, with_values=True)] == [PAGE.index("3\n")]
    without = [one.start for one in unnoticed("page", made, tmp_path, with_values=False)]
    assert without == [PAGE.index("5]"), PAGE.index("3\n")]
