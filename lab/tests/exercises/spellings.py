"""400 answers to the 80 exercises, right and wrong, with numbers in the spellings of four languages."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import count
from random import Random

from clearhead_lab.exercises.exercise import SLIPS, Answer, ExerciseSet
from clearhead_lab.exercises.judging import OTHER, RIGHT, judges
from lab.tests.exercises.learners import Learner, drawn, ways

Spelling = Callable[[float], str]


def plain(x: float) -> str:
    """Seven digits at least, without an exponent."""
    digits = f"{abs(x):.{max(0, 7 - len(str(int(abs(x)))))}f}" if abs(x) >= 1e-3 or x == 0 else f"{abs(x):.12f}"
    return ("-" if x < 0 else "") + (digits.rstrip("0").rstrip(".") if "." in digits else digits)


def marked(thousands: str, point: str, minus: str = "-") -> Spelling:
    """Groups of three digits between these marks."""

    def spell(x: float) -> str:
        whole, dot, decimals = plain(abs(x)).partition(".")
        return (minus if x < 0 else "") + f"{int(whole):,}".replace(",", thousands) + (point if dot else "") + decimals

    return spell


def scientific(between: str, *, raised: bool = False) -> Spelling:
    """1.25e3, 1,25 · 10³."""

    def spell(x: float) -> str:
        digits, power = f"{x:.9e}".split("e")
        power = str(int(power))
        return digits + between + (power.translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")) if raised else power)

    return spell


def fraction(x: float) -> str:
    near = Fraction(x).limit_denominator(100_000)
    return f"{near.numerator}/{near.denominator}".replace("-", "−")


def with_(text: str, inner: Spelling = plain) -> Spelling:
    return lambda x: text.replace("#", inner(x))


def percent(form: str, point: str = ".") -> Spelling:
    return lambda x: form.replace("#", plain(100 * x).replace(".", point))


SPELLINGS: tuple[Spelling, ...] = (
    *(marked(*how) for how in ((",", "."), (".", ",", "−"), ("\u202f", ",", "–"), ("\u2009", ".", "−"))),
    marked("\u00a0", ","),
    *(marked(*how) for how in (("’", ".", "—"), ("'", ","), ("_", "."), ("", ",", "– "), ("", "."))),
    *(scientific("e"), scientific("E"), scientific(" · 10^"), scientific(" × 10", raised=True), fraction),
    *(percent("# %"), percent("#%", ","), percent("#\u202f%", ","), percent("# percent"), percent("# Prozent", ",")),
    *(percent("# pour cent", ","), percent("#パーセント"), with_("≈ #"), with_("=#"), with_("~#"), with_("# nats")),
    *(with_("# Gewichte", marked(".", ",")), with_("#個", marked(",", ".")), with_("# bits\u00a0", marked(" ", ","))),
)


def meant(given: ExerciseSet, spelled: Iterator[int]) -> Iterator[tuple[Learner, str]]:
    """Ten numbers or two other answers to each exercise, and the text of each number."""
    for one in given.exercises:
        own, random = ways(given.name)[one.name], Random(one.name)
        if one.kind != "number":
            for name in [*own][:2]:
                yield Learner(one.name, name, drawn(own[name], random)), ""
            continue
        x = drawn(own[RIGHT], random)["number"]
        slips = [(name, x / by) for name, factors in SLIPS.items() for by in factors][: 4 if x else 0]
        wrong = [(name, drawn(own[name], random)["number"]) for name in own if name != RIGHT]
        made = [(RIGHT, x)] * 4 + slips + wrong + [(OTHER, 7.7 * x + 3.3 + i) for i in range(6)]
        for (name, number), i in zip(made[:10], spelled, strict=False):
            yield Learner(one.name, name, {"number": number}), SPELLINGS[i % len(SPELLINGS)](number)


def answers(given: ExerciseSet, spelled: Iterator[int] | None = None) -> Iterator[tuple[Learner, str, str]]:
    """Those, with what Python's judge says."""
    judge = judges(given)
    for one, text in meant(given, spelled or count()):
        yield one, text, judge[one.exercise](Answer.model_validate(one.answer))
