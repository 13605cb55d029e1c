"""Sentences about a model, as plain text: what it does, its score, and how to report it in a paper."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from importlib import metadata

import numpy as np

from tracelearn.report.facts import ModelFacts, View
from tracelearn.report.pages import number, signed, times
from tracelearn.report.scores import Confusion, Evaluation, Residuals, Study, in_words

__all__ = [
    "lead",
    "listed",
    "methods",
    "rounded",
    "strength_of",
    "title",
    "versions",
    "what_views_are",
    "with_interval",
]

_SHOWN_CLASSES = 12  # in a sentence
_LIBRARIES = {"tracelearn": "tracelearn", "numpy": "NumPy", "scipy": "SciPy", "scikit-learn": "scikit-learn"}


def listed(names: Sequence[str], most: int = _SHOWN_CLASSES) -> str:
    """Write names one after the other, of many the first."""
    hidden = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + hidden


def _joined(words: Sequence[str]) -> str:
    """Join words by commas, and the last by "and"."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def _decimals(error: float) -> int:
    """Count the decimals that show two digits of an error; three for errors that are nearly zero, or infinite."""
    return max(1 - math.floor(math.log10(error)), 0) if 1e-6 < error < math.inf else 3


def rounded(mean: float, error: float) -> tuple[str, str]:
    """Write a mean and its standard error with the decimals that show two digits of the error.

    Examples
    --------
    >>> from tracelearn.report.words import rounded
    >>> rounded(0.82512, 0.0241), rounded(0.99977, 0.00006), rounded(1.0, 0.0)
    (('0.825', '0.024'), ('0.999770', '0.000060'), ('1.000', '0.000'))
    """
    decimals = _decimals(error)
    return signed(mean, decimals), f"{error:.{decimals}f}"


def with_interval(result: Confusion | Residuals) -> tuple[str, str]:
    """Write the score that says most, and its 95 % interval, "" if there is none, with decimals that tell its ends apart."""
    _, value, _, _ = result.headline
    if result.interval is None:
        return signed(value), ""
    low, high = result.interval
    decimals = max(_decimals(0.5 * (high - low)) - 1, 3)
    return signed(value, decimals), f"{signed(low, decimals)} to {signed(high, decimals)}"


def strength_of(facts: ModelFacts) -> float:
    """Find the alpha of a model, the largest over targets."""
    return (
        float(np.max(facts.predictor.alpha_, initial=0.0))
        if hasattr(facts.predictor, "alpha_")
        else float(facts.predictor.alpha)
    )


# --- what it does ------------------------------------------------------------------------------------------------------


def title(facts: ModelFacts) -> str:
    """Say in a few words what kind of model it is."""
    if facts.classes is not None:
        return f"A linear classifier for {len(facts.classes)} classes"
    return f"A linear model of {_numbers_in_words(facts)}"


def _numbers_in_words(facts: ModelFacts) -> str:
    """Name the targets of a regressor, or count them."""
    count = len(facts.targets)
    if facts.names_targets and count <= 3:
        return _joined(facts.targets)
    return "a number" if count == 1 else f"{count} numbers"


def what_views_are(facts: ModelFacts) -> dict[str, str]:
    """Say what each view of a search computes from a sample, by its label.

    Signals are followed along the mode that is time, or whatever it is called: nothing here is about one field.
    """
    along = facts.time_name or "time"
    return {
        "raw": "the entries",
        "log": "the logarithms of the entries",
        "whitened": "the whitened entries",
        "whitened fully": "the fully whitened entries",
        "whitened channels": f"the entries, whitened across all modes but {along}",
        "derivative": "the slope at every point, in units of its standard deviation",
        "second derivative": "the curvature at every point, in units of its standard deviation",
        "derivative corrected": "the slope at every point, with all samples made alike in size",
        "convolutions": f"how often short waveforms occur along {along}",
        "few convolutions": f"how often short waveforms occur along {along} (few of them)",
        "convolutions of mean": f"how often short waveforms occur along {along} in the mean over all other modes",
        "few convolutions of mean": f"how often short waveforms occur along {along} in the mean (few of them)",
        "lengths": f"how many steps of {along} there are",
        "second order": f"covariances over {along}",
        "second order, difference": f"covariances over {along} of signals and their differences",
        "second order, two windows": f"covariances over the halves of {along}",
        "second order, three windows": f"covariances over the thirds of {along}",
        "second order, lags": f"covariances over {along} of signals and shifted copies",
        "second order, slow lags": f"covariances over {along} of signals and copies shifted further",
        "thresholds": "whether entries, or means over intervals, are above thresholds",
        "similarities": "the similarity to training samples",
        "similarities, standardized": "the similarity to training samples, with entries of one variance",
        "similarities, second order": "the similarity of covariances to those of training samples",
    }


def _computed(facts: ModelFacts) -> str:
    """Say of what the model is a weighted sum."""
    shape = facts.shape
    names = " × ".join(mode.name for mode in facts.modes)
    views = [view.label for view in facts.views if view.has_weights] or [
        view.label for view in facts.views if view.found
    ]
    if all(view == "raw" or view.startswith("whitened") for view in views) and not facts.weighs_views:
        size = f"{times(shape)} = {int(np.prod(shape)):,}" if len(shape) > 1 else f"{shape[0]:,}"
        return f"a weighted sum of the {size} entries of a sample ({names}), plus a constant"
    words = what_views_are(facts)
    sums = _joined([f"{words[view]} ({view})" if view in words else f"what {view} computes" for view in views])
    return f"a weighted sum of {sums}, of a sample of {times(shape)} ({names}), plus a constant"


def lead(facts: ModelFacts) -> str:
    """Say in one sentence what the model does, and in another how simple it is."""
    weighted, count, classes = _computed(facts), len(facts.targets), facts.classes
    if classes is None:
        does = f"predicts {_numbers_in_words(facts)}{', each' if count > 1 else ''} as {weighted}"
    elif facts.target_kind == "step":
        does = (
            f"goes down a tree of {count} decisions between groups of the {len(classes)} classes {listed(classes)}; each "
            f"decision is {weighted}"
        )
    elif count == 1:
        first, second = classes
        does = f"separates {second} from {first} by {weighted}: above zero it predicts {second}, below zero {first}"
    else:
        does = (
            f"gives each of {len(classes)} classes ({listed(classes)}) a score, {weighted}, and predicts the class with the "
            "highest"
        )
    if facts.is_zero:
        return f"The model {does}. All its weights are zero: it ignores the samples, and always predicts the same."
    if facts.weighs_views or not facts.has_components:
        return f"The model {does}."
    counts = [
        f"{components.carrying} of {len(components.mode.values):,} in {components.title}"
        for components in facts.components
    ]
    verb = "carries" if len(counts) == 1 and facts.components[0].carrying == 1 else "carry"
    return f"The model {does}. Its weights are sums of components: {_joined(counts)} {verb} 99 % of their squares."


# --- how to report it --------------------------------------------------------------------------------------------------


def versions() -> str:
    """Name the libraries that the page was made with."""
    libraries = [f"{name} {metadata.version(package)}" for package, name in _LIBRARIES.items()]
    return ", ".join([*libraries, f"Python {platform.python_version()}"])


def methods(facts: ModelFacts, evaluation: Evaluation | None, study: Study) -> str:
    """Write what a paper says of a model; what is not known stands in brackets, to be filled in."""
    sentences = [
        _samples_in_words(facts, study),
        *([f"Samples of each group were aligned by {facts.alignment}."] if facts.alignment else []),
        _choice_in_words(facts, study),
        *_scores_in_words(facts, evaluation),
        *_test_in_words(study),
        f"The relative duality gap of the fit was {number(facts.predictor.dual_gap_, 2)}: no other weights make its objective "
        "smaller by more than this share of the objective at zero weights.",
        "Weights are interpreted by their patterns (Haufe et al., 2014).",
        f"Software: {versions()}.",
    ]
    return " ".join(sentences)


def _samples_in_words(facts: ModelFacts, study: Study) -> str:
    shape = times(facts.shape)
    names = " × ".join(mode.name for mode in facts.modes)
    count = "[number]" if study.n_samples is None else f"{study.n_samples:,}"
    groups = f" in {study.n_groups:,} groups" if study.n_groups else ""
    if facts.classes is not None:
        task = f"classified into {len(facts.classes)} classes ({listed(facts.classes)})"
    else:
        task = f"used to predict {_numbers_in_words(facts)}"
    confounds = f" after {_joined(list(study.confounds))} had been regressed out of them" if study.confounds else ""
    completed = f" They were completed for views that need it ({facts.completed})." if facts.completed else ""
    return f"Samples of shape {shape} ({names}; n = {count}{groups}) were {task}{confounds}.{completed}"


def _choice_in_words(facts: ModelFacts, study: Study) -> str:
    """Say which model was fitted, and how it was chosen."""
    last, chosen = facts.predictor, facts.chosen
    loss = in_words(getattr(last, "loss_", getattr(last, "loss", None)) or "squared_error")
    loss = loss if loss.endswith("loss") else f"{loss} loss"
    ridge = float(getattr(last, "ridge_", getattr(last, "ridge", 0.0)))
    alpha = strength_of(facts)
    if alpha:
        strengths = f"alpha = {number(alpha)}, ridge = {number(ridge)}"
        norm = f"the {in_words(last.penalty)} trace norm of the weights ({strengths})"
    else:
        norm = f"a squared norm of the weights (ridge = {number(ridge)})"
    fit = f"the {loss} and {norm}"
    name = type(last).__name__
    if chosen is None:
        how = "by default, from the samples" if getattr(last, "alpha", None) == "auto" else "in advance"
        return f"A linear model ({name}) was fitted with {fit}; alpha was set {how}."
    folds = f"{chosen.n_folds}-fold cross-validation"
    if study.n_groups:
        folds += ", which held out whole groups,"
    words = what_views_are(facts)
    in_model = [_view_with_share(view, words) for view in facts.views if view.found]
    if in_model:
        return (
            f"Of {len(facts.views)} views of the samples, {folds} chose {_joined(in_model)}, fitted by a linear model ({name}) "
            f"with {fit}."
        )
    return f"A linear model ({name}) was fitted with {fit}, whose strengths {folds} chose."


def _view_with_share(view: View, words: dict[str, str]) -> str:
    """Say what a view computes, with its name and its share, and whether the norm has left it without weights."""
    notes = [f'"{view.label}"'] if view.label in words else []
    if view.share is not None:
        notes.append(f"share {view.share:.2f}")
    if not view.has_weights:
        notes.append("weights zero in the final fit")
    description = words.get(view.label, view.label)
    return f"{description} ({'; '.join(notes)})" if notes else description


def _scores_in_words(facts: ModelFacts, evaluation: Evaluation | None) -> list[str]:
    """Say how well it did, on folds of training samples or on others."""
    sentences = []
    if evaluation is not None and evaluation.folds is not None:
        folds, (name, _, guess, _) = evaluation.folds, evaluation.result.headline
        mean, error = rounded(folds.mean, folds.standard_error)
        sentences.append(
            f"On {folds.count} folds, each predicted by a model chosen and fitted without it, {name} was {mean} ± {error} "
            f"(mean ± standard error, corrected for overlapping training sets; {guess} alone: {signed(folds.baseline)})."
        )
    elif facts.chosen is not None:
        mean, error = rounded(facts.chosen.score, facts.chosen.error)
        corrected = " and for the choice among models" if hasattr(facts.predictor, "raw_score_") else ""
        sentences.append(
            f"The {facts.chosen.quantity} was {mean} ± {error} (mean ± standard error, corrected for overlapping training sets"
            f"{corrected})."
        )
    if evaluation is not None and evaluation.folds is None:
        name, _, guess, baseline = evaluation.result.headline
        value, interval = with_interval(evaluation.result)
        sure = f", 95 % interval {interval}" if interval else ""
        sentences.append(
            f"On {evaluation.result.total:,} other samples, {name} was {value} ({guess} alone: {signed(baseline)}{sure})."
        )
    return sentences


def _test_in_words(study: Study) -> list[str]:
    """Say what a permutation test found, where there was one."""
    if study.test is None:
        return []
    count = len(study.test.null)
    return [
        f"The held-out {study.test.scoring} of {study.test.score:.3f} was tested against {count:,} permutations of "
        f"{study.test.exchanged} (p = {study.test.p_value:.2g})."
    ]
