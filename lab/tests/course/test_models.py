"""The small models of the course, and what they learn from."""

from clearhead_lab.course.models import PAIRS, PEOPLE, UNSEEN


def test_people_are_seen_in_no_sentence_that_a_model_learns_from():
    assert len(PEOPLE) == len({*PEOPLE}) == 32
    assert not {*PEOPLE} & {*PAIRS, *UNSEEN}
    known = {word for pair in PAIRS for text in pair for word in text.split()}
    assert {word for pair in PEOPLE for text in pair for word in text.split()} <= known
