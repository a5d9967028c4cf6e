"""A sentence that claims a cause is measured, and the same check fails where the claim is false."""

import pytest

from clearhead_lab.course import around, site
from clearhead_lab.course.claims import complaints
from clearhead_lab.course.page import parts
from clearhead_lab.course.running import run

PAGE = """# Doors

```python
doors = {"left": 0.1, "right": 0.9}
```

The light comes through the right door
only. We close each door: what is left?

```claim
says = "the right door only"
closed = "'right'"
left = "1 - doors[closed]"
check = "left < 0.2"
false.closed = "'left'"
```

We look so that nothing is missed. One head learns the task too: the experiment `heads` of the lab.

```excused
"so that nothing is missed" = "purpose"
```

```lab
heads = "does not hold: One head learns the task too"
```
"""


def test_a_measured_sentence_opens_what_it_was_measured_by(tmp_path):
    ran = run("page", PAGE, tmp_path)
    assert ran.problems == []
    assert 'door\nonly. <button class="measured" popovertarget="measured-0">measured</button> We close' in ran.markdown
    assert "<td><code>1 - doors[closed]</code></td><td>0.1</td><td>0.9</td>" in ran.markdown
    assert "<strong>The light comes through the right door only.</strong>" in ran.markdown
    assert "measured it: <em>left</em> is 0.1. The sentence holds." in ran.markdown
    assert "measured again: <em>left</em> is 0.9. There the sentence does not hold" in ran.markdown
    assert "`heads`: it **does not hold**. One head" in ran.markdown


def test_a_sentence_that_two_claims_measure_has_one_mark_that_leads_to_both(tmp_path):
    block = PAGE[PAGE.index("```claim") : PAGE.index("We look")]
    other = block.replace("the right door only", "The light comes through").replace("left < 0.2", "left < 0.3")
    ran = run("page", PAGE.replace(block, block + other), tmp_path)
    assert ran.problems == []
    assert 'only. <button class="measured" popovertarget="measured-0">measured, 2 checks</button> We' in ran.markdown
    first, second = ran.markdown.split('<div class="measured"')[1:]
    assert 'popovertarget="measured-1">another check' in first
    assert 'popovertarget="measured-0">another check' in second


@pytest.mark.parametrize(
    ("written", "changed", "said"),
    [
        ("left < 0.2", "left > 0.2", "the claim does not hold: left > 0.2, with closed right, left 0.1"),
        ("left < 0.2", "left < 2", "the claim holds where it is false: left < 2, with closed left, left 0.9"),
        ("false.closed = \"'left'\"", "false.closed = \"'right'\"", "it would be compared with itself"),
        ("false.closed", "false.door", "false: expected names of the claim, got door"),
        ('left = "1 - doors[closed]"', 'left = "closed"', "TypeError"),
        ('left = "1', 'right = "1 - doors[closed]"\nleft = "1', "two names have one expression"),
        ('check = "left < 0.2"\n', "", "expected says, check, a table false"),
        ("the right door\nonly", "the left door\nonly", "0 sentences say 'the right door only', expected one"),
        ("the right door\nonly", "the right door", "0 sentences say"),
        ('says = "the right door only"', 'says = "We close"', "'only' claims a cause"),
        ("what is left?", "nothing is left without it.", "'without' claims a cause"),
        ('closed = "', 'plain = "We close 2 doors."\nclosed = "', "plain: '2' is a number that no expression computes"),
        ('"purpose"', '"taste"', "excused: expected one of what is done, task"),
        ("heads = ", "induction = ", "the sentence names heads; a block lab says what it found"),
        ('"does not hold: ', '"holds: ', "heads does not hold: One head learns the task too"),
        ('learns the task too"\n', 'learns nothing"\n', "heads does not hold: One head learns the task too"),
        ("heads = ", "hats = ", "no experiment hats in the lab"),
    ],
)
def test_a_claim_that_is_not_shown(tmp_path, written: str, changed: str, said: str):
    assert written in PAGE
    found = run("page", PAGE.replace(written, changed, 1), tmp_path).problems
    assert any(said in problem for problem in found), found


def test_a_sentence_cannot_change_under_its_claim(tmp_path):
    accepted = run("page", PAGE, tmp_path).values
    found = run("page", PAGE.replace("The light", "No light"), tmp_path, accepted).problems
    assert any("sentences is" in problem for problem in found), found


@pytest.mark.parametrize("name", around.CHAPTERS)
def test_every_chapter_claims_and_excuses_little(name: str):
    of = list(parts(site.source(name)))
    assert [*complaints(of)] == []
    n = {kind: sum(part.text.count("\n") for part in of if part.language == kind) for kind in ("claim", "excused")}
    assert n["excused"] <= 3 < n["claim"]
