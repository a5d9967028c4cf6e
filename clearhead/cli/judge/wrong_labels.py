"""`clearhead wrong-labels`: labels that a linear model which has not learnt from their texts does not believe."""

import json as json_lines
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from clearhead.brief import brief, cut
from clearhead.cli.options import Flag, tell
from clearhead.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from clearhead.config.heads import ProblemType
    from clearhead.tasks.classification.data import LabelledText
    from clearhead.tasks.classification.task import ClassificationRecipe

TOP, WIDTH = 20, 100
"""How many texts are printed, and characters of each."""
FAR, NORMAL = 3.0, 1.4826
"""Deviations beyond which a number is likely wrong; a deviation is 1.4826 median absolute ones (Leys et al. 2013)."""
FEATURES = 1 << 18
"""Most kinds of words, and of pieces of words, that the model counts."""


@dataclass(frozen=True)
class Doubts:
    """What a model says of texts from which it has not learnt."""

    __repr__ = brief

    wrong: "np.ndarray"
    """The examples whose labels are likely wrong, the likeliest first."""
    scores: "np.ndarray"
    """n: for each example; the lower, the likelier its label is wrong."""
    suggested: Sequence[Sequence[str]]
    """n: the labels or the number that the model believes."""
    agreement: str
    """How far the model agrees with what is given."""


def wrong_labels(
    table: str,
    /,
    *changes: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)],
    text: str | None = None,
    label: str | None = None,
    text_pair: str | None = None,
    folds: int = 5,
    json: Flag = False,
) -> None:
    """List the texts of a table whose labels are likely wrong, the likeliest first.

    A linear model of words and pieces of words learns from all parts of the texts but one (fold), and says what it
    believes of that one. Its own mean confidence in each label decides from where it is believed.

    Args:
        table: A table of labelled texts, a run that learnt from one, or a recipe file (.toml).
        changes: Fields of the recipe, as for train.
        text: Column of the texts, where a table is given (default: guessed, as by train).
        label: Column of the labels.
        text_pair: Column of the second text, where two texts have one label together.
        folds: Parts of the texts.
        json: Print the whole list, a JSON object on each line.
    """
    from clearhead.tasks.classification.data import read_labelled

    data = classifier_of(table, changes, columns={"label": label, "text_pair": text_pair}, text=text).data
    examples = [e for e in read_labelled(data.sources["train"], data) if not e.is_blank]
    doubts = doubt(examples, data.problem_type, folds)
    tell(doubts.agreement)
    tell(f"{len(doubts.wrong):,} of {len(examples):,} labels are likely wrong, the likeliest first:")
    for i in doubts.wrong.tolist()[: None if json else TOP]:
        one, suggested, score = examples[i], doubts.suggested[i], float(doubts.scores[i])
        row = {"row": one.place, "given": one.labels, "suggested": suggested, "score": score, "texts": one.texts}
        given, better = ("|".join(names) or "none" for names in (one.labels, suggested))
        line = f"{one.place}  given {given}  suggested {better}  {cut(' '.join(' / '.join(one.texts).split()), WIDTH)}"
        print(json_lines.dumps(row, ensure_ascii=False) if json else line)


def classifier_of(
    name: str, changes: Sequence[str], *, columns: Mapping[str, str | None], text: str | None
) -> "ClassificationRecipe":
    """The recipe of a run, of a recipe file, or of a table with these columns.

    Raises UserError if it gives no labels.
    """
    from clearhead.api import model_folder
    from clearhead.session.recipes import recipe_of
    from clearhead.tasks.classification.task import ClassificationRecipe
    from clearhead.tasks.registry import validate
    from clearhead.training.run_folder import RECIPE, recipe_in

    if Path(name).is_dir():
        path = model_folder(Path(name)) / RECIPE
        recipe = validate(recipe_in(path), where=str(path))
    else:
        recipe = recipe_of(name, changes, short={}, files={"train": {"text": text}}, columns=columns, is_told=True)
    if not isinstance(recipe, ClassificationRecipe):
        raise UserError(f"{name}: expected texts with labels, got the task {recipe.task}; see clearhead train --help")
    return recipe


def doubt(examples: Sequence["LabelledText"], problem: "ProblemType", folds: int) -> Doubts:
    """The doubts of the examples' own labels, or numbers, and of those alone that each fold has.

    Raises UserError for fewer than two folds, and for fewer labels, or texts, than folds.
    """
    import numpy as np

    from clearhead.tasks.classification.data import names_of

    if folds < 2:
        raise UserError(f"--folds: expected at least 2, got {folds}")
    if problem == "regression":
        given = np.array([float(example.labels[0]) for example in examples])
        numbers = predict(examples, given[:, None], given, folds)[:, 0]
        off = abs(given - numbers - np.median(given - numbers))
        scores = -off / max(NORMAL * np.median(off), np.finfo(float).tiny)
        wrong = scores < -FAR
        agreement = f"half of the model's numbers are within {np.median(off):.3g} of the given ones"
        suggested = [[f"{number:.4g}"] for number in numbers]
    else:
        several = problem == "multi_label_classification"
        counts = {name: len({e.normalized for e in examples if name in e.labels}) for name in names_of(examples)}
        names = [name for name, count in counts.items() if count >= folds]
        if rare := sorted(counts.keys() - set(names)):
            tell(f"not judged, as they have too few texts for the folds: {', '.join(rare[:12])}")
        if len(names) < 2:
            raise UserError(f"expected at least 2 labels with {folds} texts each, got fewer; try fewer --folds")
        has = np.array([[name in example.labels for name in names] for example in examples])
        strata = np.array([min(e.labels, key=lambda name: (counts[name], name), default="") for e in examples])
        shares = predict(examples, has, strata, folds)
        # Confident learning (Northcutt et al. 2021): a label is believed from the mean share of the texts that have it.
        believed = shares > 0.5 if several else np.eye(len(names), dtype=bool)[shares.argmax(1)]
        sure = np.where(believed, shares >= mean(shares, has), several & (1 - shares >= mean(1 - shares, ~has)))
        scores = np.where(has, shares, 1 - shares if several else 1.0).min(1)
        wrong = ((believed != has) & sure).any(1) & (several | has.any(1))
        suggested = [[name for name, there in zip(names, row, strict=True) if there] for row in believed]
        agreement = f"the model agrees with {(believed == has).all(1).mean():.1%} of the labels"
    order = np.argsort(scores, kind="stable")
    return Doubts(order[wrong[order]], scores, suggested, agreement)


def mean(shares: "np.ndarray", where: "np.ndarray") -> "np.ndarray":
    """v: the mean of each column over some rows."""
    return (shares * where).sum(0) / where.sum(0).clip(1)


def predict(
    examples: Sequence["LabelledText"], targets: "np.ndarray", strata: "np.ndarray", folds: int
) -> "np.ndarray":
    """n v: the share of each label, or a number, by a model of the other folds. Equal texts are in one fold."""
    import numpy as np
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.model_selection import GroupKFold, StratifiedGroupKFold, cross_val_predict
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline, make_union

    groups = np.unique([example.normalized for example in examples], return_inverse=True)[1]
    if groups.max() + 1 < folds:
        raise UserError(f"expected at least {folds} texts, got {groups.max() + 1}; try fewer --folds")
    is_number = targets.dtype != bool
    kind = GroupKFold if is_number else StratifiedGroupKFold
    counted = partial(TfidfVectorizer, sublinear_tf=True, max_features=FEATURES)
    words = counted(ngram_range=(1, 2), tokenizer=str.split, token_pattern=None)
    pieces = counted(analyzer="char_wb", ngram_range=(2, 5))
    model = Ridge() if is_number else OneVsRestClassifier(LogisticRegression(C=3.0, max_iter=500))
    texts = [" ".join(example.texts) for example in examples]
    method = "predict" if is_number else "predict_proba"
    learner = make_pipeline(make_union(words, pieces), model)
    with warnings.catch_warnings(action="ignore"):  # About rare labels, and about many iterations.
        cuts = [*kind(folds, shuffle=True, random_state=0).split(strata, strata, groups)]
        found = cross_val_predict(learner, texts, targets, cv=cuts, method=method)
    return found.reshape(len(texts), -1)
