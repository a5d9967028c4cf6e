"""Decides which column of a table has which role, and which task that makes. Imports no torch."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations
from statistics import StatisticsError, correlation
from typing import Any

from clearhead.brief import amount
from clearhead.data.profiles import FEW, Profile, Target
from clearhead.data.sniffing import Decision
from clearhead.data.tables import cell_at, items_of, written
from clearhead.data.tagged_columns import SPAN_TAG
from clearhead.errors import UserError, pasted
from clearhead.recipe.data import Column

PAIRS = (("premise", "hypothesis"), ("query", "passage"), ("query", "document"), ("context", "response"))
PAIRS += (
    ("question", "sentence"),
    ("question", "passage"),
    ("claim", "evidence"),
    ("text", "hypothesis"),
    ("context", "hypothesis"),
)
ENDS = ({"1", "2"}, {"0", "1"}, {"a", "b"}, {"left", "right"}, {"first", "second"})
LANGUAGES = {
    *"en de fr es it pt nl ru uk pl cs sk sv da nb fi et lv lt hu ro bg el tr ar he fa hi bn ta th vi zh ja ko".split(),
    *"eng deu ger fra fre spa ita por nld rus ukr pol ces swe dan fin hun ron tur ara heb hin zho chi jpn kor".split(),
    *"english german french spanish italian portuguese dutch russian ukrainian polish czech swedish danish".split(),
    *"finnish hungarian romanian bulgarian greek turkish arabic hebrew persian hindi bengali tamil thai".split(),
    *"vietnamese chinese japanese korean source src target tgt trg".split(),
}
RELATIONS = {*"label score entailment relation relatedness similarity duplicate quality judgment stance".split()}
TAG = re.compile(r"\S{1,40}")
SHOWN = 8
"""Columns that a question lists."""
OFTEN = 10
"""How often each label of the finest of several columns is there, in the mean."""
ALIGNED = 500
"""Rows by which two columns are compared."""


@dataclass(frozen=True)
class Roles:
    """The task that a table is for, and its columns."""

    recipe: str
    """The name of the recipe for it."""
    source: dict[str, Column]
    """The columns that each source of the recipe names."""
    data: dict[str, Any] = field(default_factory=dict)
    """Other fields of the recipe's `data`."""
    decisions: list[Decision] = field(default_factory=list)


def choose(
    path: object, columns: Sequence[Column], rows: Sequence[Sequence[object]], *, given: Mapping[str, Any] | None = None
) -> Roles:
    """The role of each column, by its name and its cells in these rows.

    `given` has columns by their role, which are not guessed: text, text_pair, source, target and label, which may be a
    list of columns. Raises UserError, which begins with `path` and names the options, if columns are equally likely.
    """
    given = given or {}
    profiles = [Profile(name, [row[i] for row in rows]) for i, name in enumerate(columns)]
    profiles += [part for profile in profiles for part in _parts(profile)]
    choice = _Choice(path, profiles, given)
    if "source" in given:
        return _pairs(choice.profile(given["source"]), choice.profile(given["target"]), "as given")
    return (None if given else _named(profiles)) or _tagging(path, profiles, given) or choice.roles()


def _parts(profile: Profile) -> list[Profile]:
    """The fields of the objects in a column."""
    objects = [cell for cell in profile.cells if isinstance(cell, dict)]
    if len(objects) < len(profile.cells) or not objects:
        return []
    shared = [name for name in objects[0] if all(name in one for one in objects)]
    return [Profile(f"{profile.name}.{name}", [one[name] for one in objects]) for name in shared]


# --- tasks that the names of columns say ------------------------------------------------------------------------------


def _named(profiles: Sequence[Profile]) -> Roles | None:
    """The roles in a table of a task other than classification."""
    by_name = {str(profile.name).lower(): profile for profile in profiles}
    if "messages" in by_name and by_name["messages"].kind == "lists":
        told = Decision("text", "messages", "lists of messages", "--text NAME")
        return Roles("chat", {"text": "messages"}, {}, [told, _task("chat", "each row is a conversation")])
    answer = by_name.get("answers") or by_name.get("answer")
    if answer and {"question", "context"} <= by_name.keys() and _is_answer(answer, by_name["context"]):
        roles = {"question": by_name["question"], "context": by_name["context"], "answer": answer}
        shown = [
            replace(_column(role, one, "by its name"), option=f"--data.{role} NAME") for role, one in roles.items()
        ]
        data = {role: one.name for role, one in roles.items()}
        told = _task("question answering", "each answer is a part of its context")
        return Roles("question_answering", {"text": roles["context"].name}, data, [*shown, told])
    texts = [profile for profile in profiles if profile.kind == "words" and _is_language(profile)]
    if len(texts) == 2 and not any(one.label_rank > 1 and one.target for one in profiles if one not in texts):
        return _pairs(texts[0], texts[1], "names of languages")
    return None


def _tagging(path: object, profiles: Sequence[Profile], given: Mapping[str, Any]) -> Roles | None:
    """The roles of a column of words and of one with a tag for each; that of names among several.

    Raises UserError for a word in each row.
    """
    lists = [one for one in profiles if one.kind in ("lists", "words")]
    pairs = ((a, b) for a, b in permutations(lists, 2) if all(map(_are_tagged, a.cells, b.cells)))
    fits = [(a, b) for a, b in pairs if given.get("text", a.name) == a.name and given.get("label", b.name) == b.name]
    if not fits:
        return None
    words, tags = min(fits, key=lambda pair: "ner" not in pair[1].plain)
    if not any(" " in str(cell) for cell in words.cells):
        remedy = "write CoNLL: each word and its tag on a line, and a blank line after each sentence"
        raise UserError(f"{path}: expected a sentence in each row, got a word and its tag in {tags.name}; {remedy}")
    shown = [_column("text", words, "words"), _column("label", tags, "a tag for each word")]
    data = {"label": tags.name}
    return Roles("tagging", {"text": words.name}, data, [*shown, _task("tagging", "words and tags")])


def _are_tagged(words: object, tags: object) -> bool:
    """Returns True for words and as many tags, which are shorter or numbers; in texts, tags of spans."""
    if isinstance(tags, str):
        words, tags = items_of(str(words)), items_of(tags)
        if not all(map(SPAN_TAG.fullmatch, tags)):
            return False
    if not isinstance(words, list) or not isinstance(tags, list) or len(words) != len(tags):
        return False
    is_tag = all(isinstance(tag, int) or (isinstance(tag, str) and TAG.fullmatch(tag)) for tag in tags)
    return is_tag and all(isinstance(word, str) for word in words) and len({*map(str, tags)}) <= max(2, len({*words}))


def _is_language(profile: Profile) -> bool:
    ends = profile.words[-1:] if len(profile.words) < 3 else []
    long = [word for word in profile.words if len(word) > 4]
    if profile.plain in ("source", "target", "src", "tgt", "trg"):
        return profile.target is None
    return any(word in LANGUAGES for word in [*ends, *long])


def _is_answer(answer: Profile, context: Profile) -> bool:
    if answer.kind in ("objects", "lists"):
        return True
    both = [*zip(answer.cells, context.cells, strict=True)]
    return 2 * sum(str(one) in str(other) for one, other in both if one) > len(both)


def _pairs(source: Profile, target: Profile, why: str) -> Roles:
    shown = [_column("source", source, why), _column("target", target, why)]
    columns = {"source": source.name, "target": target.name}
    return Roles("translation", columns, {}, [*shown, _task("translation", "each target translates its source")])


def _column(role: str, profile: Profile, why: str) -> Decision:
    return Decision(role, str(profile.name), why, f"--{role.replace('_', '-')} NAME", profile.example)


def _task(name: str, why: str) -> Decision:
    return Decision("task", name, why, "clearhead train RECIPE --data FILE")


# --- texts with labels ------------------------------------------------------------------------------------------------


class _Choice:
    """The choice of the columns of texts and labels."""

    def __init__(self, path: object, profiles: Sequence[Profile], given: Mapping[str, Any]) -> None:
        self.path, self.given, self.questions = path, given, list[str]()
        self.profiles = {profile.name: profile for profile in profiles}
        self.used = {name: self.profile(given[name]) for name in ("text", "text_pair") if name in given}

    def roles(self) -> Roles:
        """Raises UserError with every question at once."""
        words = [one for one in self.free if one.kind == "words"]
        texts = [one for one in words if one.is_text] or ([] if self.used else _likeliest(words))
        labels, why = self._labels(texts)
        texts = [one for one in texts if one not in labels]
        if not labels and not self.questions and (texts or self.used):
            return self._unlabelled(texts)
        decisions = self._texts(texts)
        if self.questions:
            raise UserError(f"{self.path}: {'; '.join(self.questions)}")
        return self._classification(decisions, labels, why)

    @property
    def free(self) -> list[Profile]:
        """The columns without a role."""
        return [profile for profile in self.profiles.values() if profile not in self.used.values()]

    def profile(self, name: Column) -> Profile:
        """The column of this name, or the field of objects into which a dot in it reaches."""
        if name not in self.profiles:
            root = self.profiles[str(name).split(".", maxsplit=1)[0]]
            inner = str(name).removeprefix(f"{root.name}.")
            self.profiles[name] = Profile(name, [cell_at(cell, inner, where=f"{self.path}") for cell in root.cells])
        return self.profiles[name]

    # --- labels

    def _labels(self, texts: Sequence[Profile]) -> tuple[list[Profile], str]:
        """The column of labels and why; none if there is none or if there are several, which asks."""
        if (given := self.given.get("label")) is not None:
            return [self.profile(name) for name in (given if isinstance(given, list) else [given])], "as given"
        candidates = [one for one in self.free if one.target and (one not in texts or one.label_rank)]
        if self._pair(texts):
            related = [one for one in candidates if RELATIONS & {*one.words}]
            candidates = related or [one for one in candidates if one.is_measure] or candidates
        rank = max((one.label_rank for one in candidates), default=0)
        best = _without_twins([one for one in candidates if one.label_rank == rank])
        if len(best) == 1 and best[0].kind == "numbers":
            named = [one for one in candidates if one.label_rank and one.kind == "words"]
            best = [one for one in named if _says_the_same(one, best[0])][:1] or best
        if len(best) > 3 and best == candidates and all(one.is_flag for one in best):
            return best, "all others than texts are 0 and 1"
        if len(best) > 1 and (rank or isinstance(best[0].name, int)) and (finest := _finest(best)):
            return [finest], "the finest: it says what the others say"
        said = re.findall("[a-z]+", "/".join(str(self.path).lower().split("/")[-2:]))
        if len(best) > 1 and len(named := [one for one in best if one.plain in said]) == 1:
            return named, "the file or its folder has its name"
        if len(best) > 1:
            self.questions.append(f"expected one column of labels, got {len(best)}; {self._offer(best)}")
            return [], ""
        is_measure = bool(best) and best[0].is_measure
        few = [one for one in candidates if one.kind == "words" and one.target and len(one.target.labels) <= FEW]
        if is_measure and few and rank < 4 and not self._pair(texts):
            self.questions.append(f"expected one column of labels, got several; {self._offer([*few, *best])}")
            return [], ""
        return best, "by its name" if rank else f"the only one {'of decimal numbers' if is_measure else 'that recurs'}"

    def _offer(self, best: Sequence[Profile]) -> str:
        """The option of each column that may hold the labels."""
        flags = [one for one in self.free if one.is_flag and one.kind in ("numbers", "words", "one value")]
        family = flags if sum(one.is_flag for one in best) > 2 else []
        others = [one for one in best if one not in family] or [one for one in family if one in best]
        others.sort(
            key=lambda one: (one.kind == "numbers" and not one.is_flag, len(one.target.labels) if one.target else 0)
        )
        shown = [f"--label {pasted(str(one.name))}: {one.target.about}" for one in others[:SHOWN] if one.target]
        if family:
            names = pasted(",".join(str(one.name) for one in family))
            shown.insert(0, f"--label {names}: any number of these {len(family)} labels")
        more = f"; or {len(others) - SHOWN} more" if len(others) > SHOWN else ""
        return f"give {'; or '.join(shown)}{more}"

    # --- texts

    def _pair(self, texts: Sequence[Profile]) -> tuple[Profile, Profile] | None:
        """Two texts that belong together, by their names or because they share words; none if the user gives one."""
        best = _likeliest(texts)
        if self.used:
            return None
        if pair := _named_pair([one for one in texts if not (one.target and one.label_rank)]):
            return None if _are_options(pair, texts) else pair
        is_pair = len(best) == 2 and _shared(*best, shift=1) + 0.2 < _shared(*best) < 0.9
        return (best[0], best[1]) if is_pair else None

    def _texts(self, texts: list[Profile]) -> list[Decision]:
        """Chooses the texts, or asks."""
        if pair := self._pair(texts):
            self.used |= dict(zip(("text", "text_pair"), pair, strict=True))
            why = "their names belong together" if _named_pair(pair) else "they share words"
            return [_column(role, one, why) for role, one in zip(("text", "text_pair"), pair, strict=True)]
        shown = {role: _column(role, one, "as given") for role, one in self.used.items()}
        if "text" not in self.used:
            pair = _named_pair(texts)
            best = [*texts] if pair and _are_options(pair, texts) else _likeliest(texts)
            if len(best) == 1:
                self.used["text"] = best[0]
                why = "by its name" if best[0].text_rank else "the longest texts"
                shown["text"] = _column("text", best[0], f"{why}; {best[0].length:,.0f} characters a row")
            elif best:
                columns = "; or ".join(f"--text {pasted(str(one.name))}: {one.example[:40]!r}" for one in best[:SHOWN])
                both = f", and --text-pair {pasted(str(best[1].name))} if both have one label together"
                self.questions.append(f"expected one column of texts, got {len(best)}; give {columns}{both}")
            else:
                kinds = ", ".join(f"{one.name} ({one.kind})" for one in self.free[:SHOWN])
                self.questions.append(f"expected a column of texts, got none: {kinds}; give --text NAME")
        return [shown[role] for role in ("text", "text_pair") if role in shown]

    def _unlabelled(self, texts: Sequence[Profile]) -> Roles:
        """A table of translations. Raises UserError, which says what else can be done, for any other."""
        pairs = [pair for pair in combinations(texts, 2) if _is_aligned(*pair)] if not self.used else []
        if len(pairs) == 1:
            return _pairs(*pairs[0], "other words of like length")
        names, file = [pasted(str(one.name)) for one in (*self.used.values(), *texts)], pasted(str(self.path))
        more = f"clearhead train lm --data {file} --text {names[0]} to learn from the texts alone"
        if len(names) > 1:
            both = f"--data.train.source {names[0]} --data.train.target {names[-1]}"
            more = f"clearhead train text_to_text --data {file} {both} to write one from the other, or {more}"
        got = f"{', '.join(names)} (texts)" if len(names) < SHOWN else f"{len(names)} columns of texts"
        expected = "expected a column of labels whose values recur"
        raise UserError(f"{self.path}: {expected}, got {got}; give --label NAME, or {more}")

    # --- both

    def _classification(self, decisions: list[Decision], labels: list[Profile], why: str) -> Roles:
        names = [one.name for one in labels]
        target = labels[0].target or labels[0].target_if_given()
        if len(labels) > 1:
            target = Target("multi_label_classification", [str(name) for name in names])
        n_missing = len(labels[0].cells) - len(labels[0].values)
        none = f"; {n_missing:,} rows seen have none: --skip-bad leaves such rows out" if n_missing else ""
        value = ", ".join(str(name) for name in names)
        decisions.append(Decision("label", value, f"{why}; {target.about}{none}", "--label NAME", labels[0].example))
        problem, option = self.given.get("problem_type", target.problem), "--data.problem_type TYPE"
        about = "as given" if "problem_type" in self.given else target.about
        is_whole = target.problem == problem == "single_label_classification" and all(map(str.isdecimal, target.labels))
        if about != "as given" and is_whole and len(target.labels) > 2:
            about, option = "whole numbers that recur are classes", "--data.problem_type regression"
        decisions.append(Decision("task", problem.replace("_", " "), about, option))
        for name, text in target.settings.items():
            what = "between labels" if name == "separator" else "it means that a row has none, and is left out"
            decisions.append(Decision(name.replace("_", " "), repr(text), what, f"--data.{name} TEXT"))
        used = [*self.used.values(), *labels]
        decisions += [_left_out(one) for one in self.profiles.values() if one not in used]
        columns = {role: one.name for role, one in self.used.items()}
        text = {"text": columns.pop("text")}
        label = {"label": names if len(names) > 1 else names[0], "problem_type": problem}
        return Roles("classification", text, {**columns, **label, **target.settings}, decisions)


def _left_out(profile: Profile) -> Decision:
    n = len(profile.target.labels) if profile.target else 0
    why = "other texts" if profile.is_text else amount(n, "labels") if n and not profile.is_measure else profile.kind
    return Decision("left out", str(profile.name), why, "--text NAME or --label NAME", profile.example)


def _likeliest(texts: Sequence[Profile]) -> list[Profile]:
    """The texts of the surest name, if any is sure; of these, those that are about as long as the longest."""
    rank = max((one.text_rank for one in texts), default=0)
    pool = [one for one in texts if one.text_rank == rank] if rank > 1 else texts
    longest = max((one.length for one in pool), default=0.0)
    return [one for one in pool if 2 * one.length >= longest]


def _named_pair(texts: Sequence[Profile]) -> tuple[Profile, Profile] | None:
    """The two texts whose names belong together, with the shortest names."""
    pairs = [(a, b) for a, b in combinations(texts, 2) if _differ_in_one(a.words, b.words)]
    by_name = {one.plain: one for one in texts}
    pairs += [(by_name[a], by_name[b]) for a, b in PAIRS if {a, b} <= by_name.keys()]
    return min(pairs, key=lambda pair: len(pair[0].words) + len(pair[1].words), default=None)


def _are_options(pair: Sequence[Profile], texts: Sequence[Profile]) -> bool:
    """Returns True for two texts such as `choice 1` and `choice 2` beside one whose name is that of a text."""
    return not any(one.text_rank for one in pair) and any(one.text_rank > 1 for one in texts)


def _differ_in_one(first: Sequence[str], second: Sequence[str]) -> bool:
    """Returns True for words such as `sentence 1` or `sentence`, and `sentence 2`."""
    if len(first) != len(second):
        short, long = sorted((first, second), key=len)
        return [*short, "2"] == [*long]
    different = [{a, b} for a, b in zip(first, second, strict=True) if a != b]
    return len(different) == 1 and different[0] in ENDS


def _without_twins(columns: Sequence[Profile]) -> list[Profile]:
    """One column of those that say the same in other words: the one with words in place of numbers."""
    kept: list[Profile] = []
    for one in sorted(columns, key=lambda one: one.kind == "numbers"):
        kept += [] if any(_says_the_same(one, other) for other in kept) else [one]
    return [one for one in columns if one in kept]


def _says_the_same(first: Profile, second: Profile) -> bool:
    return _says(first, second) and _says(second, first)


def _says(first: Profile, second: Profile) -> bool:
    """Returns True if each value of the first column goes with one of the second."""
    both = {(written(a), written(b)) for a, b in zip(first.cells, second.cells, strict=True)}
    return len(both) == len({a for a, _ in both})


def _finest(columns: Sequence[Profile]) -> Profile | None:
    """The column of labels that divides those of all others; none if there is none, or if its labels seldom recur."""
    fine = (one for one in columns if all(_says(one, other) for other in columns))
    return next((one for one in fine if OFTEN * len(one.counts) <= len(one.values)), None)


def _is_aligned(first: Profile, second: Profile) -> bool:
    """Returns True if the texts of two columns look like translations: other words of like length."""
    try:
        is_even = correlation(*([len(str(cell)) for cell in one.cells[:ALIGNED]] for one in (first, second))) > 0.7
    except StatisticsError:
        return False
    return is_even and len(first.cells) >= 20 and _shared(first, second) < 0.3


def _shared(first: Profile, second: Profile, *, shift: int = 0) -> float:
    """The mean share of the words of a cell that are in the other column, in the same row or `shift` rows below."""
    some = [[{*str(cell).lower().split()} for cell in one.cells[:ALIGNED]] for one in (first, second)]
    rows = [*zip(some[0], some[1][shift:], strict=False)]
    return sum(len(a & b) / max(min(len(a), len(b)), 1) for a, b in rows) / max(len(rows), 1)
