"""One model, many sets of targets: the batch that tests and intervals are made of.

A set is one version of the targets, such as a permutation of them. It changes only the products of samples and targets, so all
sets are right-hand sides of one system, factored once. Invariant: each set's answer is that of a fit to it alone, to ``tol``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import device
from scipy.stats import rankdata
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning, UndefinedMetricWarning
from sklearn.metrics import get_scorer, get_scorer_names

from tracelearn.arrays.array_api import Array, array_namespace, as_dtype, is_sparse, move_to, to_numpy
from tracelearn.confounds import Regression
from tracelearn.errors import refuse, warn
from tracelearn.estimators.base import TraceNormModel
from tracelearn.fitting import ZeroWeightsWarning
from tracelearn.losses import Loss
from tracelearn.moments import Moments
from tracelearn.problems.forms import choose_form
from tracelearn.problems.problem import Problems, Solution
from tracelearn.problems.squares import Squares
from tracelearn.samples.checks import check_finite, read_confounds
from tracelearn.samples.modes import Modes
from tracelearn.samples.samples import Block, Samples, as_raw
from tracelearn.search.folds import Folds, make_folds
from tracelearn.search.scorers import with_scores
from tracelearn.search.splits import predicted_class
from tracelearn.solvers import admm

__all__ = [
    "Pace",
    "Plan",
    "Reading",
    "check_count",
    "check_model",
    "check_scores",
    "chunks",
    "cleaned",
    "is_shared",
    "judged",
    "number_of",
    "read_groups",
    "read_labels",
    "score_name",
    "scored",
    "solve",
    "solve_stack",
    "warn_of_zero_weights",
]

# Numbers in the weights of one batch: more would leave the cache, fewer are lost in calls.
_LARGEST_BATCH = 250_000

# The smallest gap that is tried in single precision, whose rounding hides smaller ones. Most problems reach it in three or four
# iterations; it is given up after some more.
_SINGLE_TOL, _SINGLE = 1e-3, {"max_iter": 48, "merge": True}

_PILOT = 16  # problems whose step is a better guess for all others than any that looks at no solution


def is_shared(model: Any) -> bool:
    """Tell whether all sets of targets can share one system: not where weights of classes make it depend on labels."""
    return isinstance(model, TraceNormModel) and getattr(model, "class_weight", None) is None


def check_count(value: Any, name: str, least: int = 1) -> int:
    """Refuse what is no whole number, or too small."""
    refuse(
        isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least,
        f"Expected {name} to be a whole number of at least {least}, got {value!r}.",
    )
    return int(value)


def score_name(scoring: Any, *, classifier: bool) -> str:
    """Name a score, and refuse one that is not known."""
    if scoring is None:
        return "accuracy" if classifier else "r2"
    if isinstance(scoring, str):
        refuse(
            scoring not in get_scorer_names(),
            f"Expected a score that scikit-learn knows, such as 'roc_auc', got {scoring!r}.",
        )
        return scoring
    refuse(not callable(scoring), f"Expected scoring to be a name, a function or None, got {scoring!r}.")
    return str(getattr(scoring, "__name__", "score"))


def read_labels(X: Any, y: Any) -> Array:
    """Read targets as they came, and refuse where there are none."""
    refuse(y is None, "Expected one target for each sample, got none: pass y.")
    labels, samples = to_numpy(as_raw(X, y).all_targets()[0]), np.shape(X)[:1]
    if samples and len(labels) != samples[0]:
        raise ValueError(
            f"Expected one target for each of {samples[0]} samples, got {len(labels)}: samples and targets have inconsistent "
            "numbers of samples."
        )
    if labels.dtype.kind == "f":
        check_finite(labels, "y")
    return labels


def check_model(model: Any) -> None:
    """Refuse what is no estimator."""
    refuse(
        not (hasattr(model, "fit") and hasattr(model, "get_params")),
        f"Expected an estimator, such as TraceNormClassifier(), got {model!r}.",
    )


def read_groups(groups: Any, n: int) -> Array | None:
    """Read the groups of samples, and refuse those that are none."""
    if groups is None:
        return None
    found = to_numpy(groups)
    refuse(found.shape != (n,), f"Expected one group for each of {n} samples, got an array of shape {found.shape}.")
    if found.dtype.kind == "f":
        check_finite(found, "groups")
    refuse(len(np.unique(found)) < 2, "Expected at least two groups, got one: pass groups=None.")
    return found


def number_of(mode: Any, modes: Modes | None, what: str) -> Any:
    """Find the number of a mode that was called by its name; numbers stay as they are."""
    if not isinstance(mode, str):
        return mode
    names = [own.name for own in modes or ()]
    if mode not in names:
        known = ", ".join(names) or "they have none"
        raise ValueError(f"Expected {what} to be a number or the name of a mode ({known}), got {mode!r}.")
    return names.index(mode)


def cleaned(X: Array, confounds: Array | None, weight: Array) -> Array:
    """Regress confounds out of samples of NumPy, as learned from those of some weight (n,), or from an index of them."""
    if confounds is None:
        return X
    weight = weight if weight.dtype.kind == "f" else np.bincount(weight, minlength=len(X)).astype(float)
    rows = np.reshape(X, (len(X), -1))
    return np.reshape(Regression.of(Moments.of(confounds, rows, weight)).residual(rows, confounds), np.shape(X))


@dataclass(frozen=True, eq=False)
class Plan:
    """Targets, groups, confounds and folds, checked: what held-out scores begin with."""

    labels: Array
    groups: Array | None
    confounds: Array | None
    folds: Folds
    name: str  # of the score

    @classmethod
    def of(
        cls, model: Any, X: Any, y: Any, cv: Any, groups: Any, confounds: Any, scoring: Any, *, repeats: int = 1
    ) -> Plan:
        """Read what was given for a model, and draw folds, of groups whole."""
        labels, classifier = read_labels(X, y), is_classifier(model)
        groups = read_groups(groups, len(labels))
        confounds = None if confounds is None else read_confounds(confounds, len(labels))
        folds = make_folds(cv, labels, groups, classifier=classifier, repeats=repeats)
        return cls(labels, groups, confounds, folds, score_name(scoring, classifier=classifier))


@dataclass(frozen=True, eq=False)
class Reading:
    """A fixed model and samples in memory, checked once: what every batch begins with."""

    model: Any
    samples: Samples
    loss: Loss
    labels: Array  # as they came, of NumPy: (n,) or (n, K)

    @classmethod
    def of(cls, model: Any, X: Any, y: Any, confounds: Any = None) -> Reading:
        """Read samples, targets and confounds as the ``fit`` of a model does; the model itself stays as it is."""
        model = clone(model)
        model._validate_params()
        raw = as_raw(X, y, confounds=confounds).gathered()
        refuse(not raw.in_memory, "Expected samples in memory, got others: pass an array, or fewer samples.")
        samples = model._read(raw).checked()
        refuse(
            model.scaling and is_sparse(samples.like),
            "Expected dense samples with scaling='modes', got a sparse matrix: use scaling=None.",
        )
        labels = to_numpy(raw.all_targets()[0])
        labels = labels.ravel() if model._learns_classes else labels
        return cls(model, samples, model._loss(samples.n_targets), labels)

    @property
    def block(self) -> Block:
        """All samples."""
        (block,) = self.samples.blocks
        return block  # type: ignore[no-any-return]

    @property
    def n(self) -> int:
        """The number of samples."""
        return len(self.labels)

    @cached_property
    def codes(self) -> Array:
        """Targets as scores are compared with them: the numbers of classes (n,), or numbers (n, K)."""
        if not self.model._learns_classes:
            return to_numpy(self.block.Y)
        return np.searchsorted(to_numpy(self.model.classes_), self.labels)

    def cleaned(self, train: Array) -> Reading:
        """Regress the confounds, if there are any, out of all samples, as learned from some of them."""
        if not self.samples.n_confounds:
            return self
        regression = self.part(train).regression(centre=self.model.fit_intercept)
        return replace(self, samples=self.samples.residual(regression))

    def part(self, index: Array, order: Array | None = None) -> Samples:
        """Keep the samples of an index (m,), with the targets of others where ``order`` (S, m) says whose, S sets."""
        block = self.block.take(index)
        if order is not None:
            Y = to_numpy(self.block.Y)[order]  # (S, m, K)
            block = replace(block, Y=move_to(np.moveaxis(Y, 0, 1).reshape(len(index), -1), block.Y))
        return Samples.of(block, self.samples.shape)


@dataclass
class Pace:
    """What solves say of those to come: the step of ADMM, and after how many iterations most problems are proven."""

    step: float | None = None
    first_check: int | None = None

    def hints(self, *, rough: bool) -> dict[str, Any]:
        """Return options of a solver; rough solves are short, and ask for a certificate as soon as it is likely to hold."""
        if self.step is None:
            return {"check_every": 4} if rough else {}
        return {"step": self.step} | ({"check_every": 1, "first_check": self.first_check} if rough else {})

    def learn(self, found: Solution, gaps: list[Array], tol: float) -> None:
        """Take the step from the first solve, and from the gaps of each iteration of the second when most are below ``tol``.

        A certificate costs more than an iteration, so it should hold for more than half of the problems.
        """
        xp, count = array_namespace(found.gap), found.gap.shape[0]
        if self.step is not None and self.first_check is None:
            self.first_check = 1 + sum(int(xp.sum(xp.astype(gap > tol, xp.int64))) > 0.25 * count for gap in gaps)
        if self.step is None and found.rho is not None:
            self.step = float(xp.exp(xp.mean(xp.log(found.rho))))


def chunks(count: int, size: int) -> Iterator[slice]:
    """Cut a count of sets into batches whose weights are not too large, given the numbers of one set."""
    step = max(1, _LARGEST_BATCH // size)
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


def solve(
    reading: Reading,
    samples: Samples,
    n_sets: int = 1,
    tol: float = 0.0,
    pace: Pace | None = None,
    n_exact: int = 0,
) -> tuple[Array, Array]:
    """Fit the model to every set of targets; return weights (S K, p) and intercepts (S K,).

    The loss of several classes that is not a sum over them has one system for each set: its sets are solved one by one. Gaps are
    at most ``tol``, or that of the model where it is larger; those that single precision can prove are solved in it. The first
    ``n_exact`` sets get that of the model in any case. ``pace`` is what calls for samples
    alike have learned.
    """
    model, loss, K = reading.model, reading.loss, samples.n_targets // n_sets
    if n_sets > 1 and not (loss.has_moments or (loss.is_separable and not (model.target_mode and K > 1))):
        parts = enumerate(_apart(samples, n_sets))
        apart = [solve(reading, one, tol=tol, pace=pace, n_exact=int(s < n_exact)) for s, one in parts]
        xp = array_namespace(apart[0][0])
        return xp.concat([W for W, _ in apart]), xp.concat([b for _, b in apart])
    form, joint = choose_form(samples, loss), model.target_mode
    scales = samples.mode_scales() if model.scaling else None
    options: dict[str, Any] = {"ridge": model.ridge, "fit_intercept": model.fit_intercept, "spectral": n_sets > 1}
    fit: Any = form.data_fit(samples.rescaled(scales), loss, joint=joint and n_sets == 1, **options)
    if joint and n_sets > 1:
        fit = replace(fit, ridge=fit.ridge[:n_sets])  # rows of one set are one problem
    first = n_exact * fit.n_problems // n_sets
    W = _solved(reading, fit, K, first, max(tol, model.tol), Pace() if pace is None else pace)
    b = fit.intercept(W) if model.fit_intercept else array_namespace(W).zeros_like(W[:, 0])
    return W if scales is None else W / scales, b


def solve_stack(model: Any, fit: Squares, n_targets: int, where: str, *, exact_ranks: bool) -> Array:
    """Solve problems with a system each as one batch, (T K, p); warn of gaps above that of the model, and say where."""
    problems, solver = model._stated(fit, n_targets)
    solution = solver(problems, tol=model.tol, max_iter=model.max_iter, exact_ranks=exact_ranks)
    if (gap := float(np.max(solution.gap))) > model.tol:
        warnings.warn(
            f"Expected relative duality gaps of {model.tol:g} at all {where}, got {gap:.1e} at some: increase max_iter, scale "
            "the features, or accept a larger tol.",
            ConvergenceWarning,
            stacklevel=6,
        )
    return array_namespace(solution.W).reshape(solution.W, fit.cross.shape)


def _solved(reading: Reading, fit: Any, n_targets: int, n_exact: int, tol: float, pace: Pace) -> Array:
    """Solve all problems of a data fit to a gap, batch by batch: (S K, p); the first ones to that of the model.

    Single precision comes first where it can prove that gap; what it leaves open is solved in double.
    """
    model, xp = reading.model, array_namespace(fit.ridge)
    _, solver = model._stated(fit.take(xp.arange(1, device=device(fit.ridge))), n_targets)
    size = fit.n_features * (n_targets if model.target_mode else 1)
    exact: list[tuple[Any, float, dict[str, Any]]] = [(fit, model.tol, {"max_iter": model.max_iter})]
    tries = [(fit, tol, {"max_iter": model.max_iter})]
    if tol >= _SINGLE_TOL and model.alpha != 0 and isinstance(fit, Squares) and solver is admm:
        tries = [(fit.single(), tol, _SINGLE), *tries]
    gap, numbers, parts = 0.0, [], []
    for part in _parts(n_exact, fit.n_problems, size, pilot=pace.step is None):
        left = xp.arange(part.start, part.stop, device=device(fit.ridge))
        for one, wanted, options in exact if part.stop <= n_exact else tries:
            own = one if left.shape[0] == fit.n_problems else one.take(left)
            problems, _ = model._stated(own, n_targets)
            gaps: list[Array] = []
            watch = {"on_iteration": lambda now, to=gaps: to.append(now.gap)}
            found = solver(
                problems, tol=wanted, exact_ranks=False, **options, **watch, **pace.hints(rough=one is not fit)
            )
            if solver is admm and part.stop > n_exact and one is tries[0][0]:
                pace.learn(found, gaps, wanted)
            # In double precision: what is rounded to the tolerance of single precision can be above it.
            done = as_dtype(found.gap, fit.ridge.dtype) <= (wanted if one is not fit else math.inf)
            W = as_dtype(_without_dust(problems, found, wanted), fit.ridge.dtype)
            W = xp.reshape(W, (left.shape[0], -1, fit.n_features))
            numbers.append(left[done])
            parts.append(W[done, ...])
            left = left[~done]
            if left.shape[0] == 0:
                break
        gap = max(gap, float(xp.max(found.gap)) / wanted)
    if gap > 1.0:
        warnings.warn(
            f"Expected relative duality gaps of {wanted:g} in all fits, got {gap * wanted:.1e} in some: increase max_iter, scale "
            "the features, or accept a larger tol.",
            ConvergenceWarning,
            stacklevel=4,
        )
    order = xp.argsort(xp.concat(numbers))
    return xp.reshape(xp.take(xp.concat(parts), order, axis=0), (-1, fit.n_features))


def _without_dust(problems: Problems, found: Solution, tol: float) -> Array:
    """Replace weights by zero where they gain no more than the gap, and their split says that they are zero.

    What is left of them is rounding, but a score of ranks, such as an area under a curve, would see it.
    """
    xp, gain = array_namespace(found.W), problems.scale - found.objective
    parts = found.split.parts if isinstance(found.split.parts, tuple) else (found.split.parts,)
    empty = [~xp.all(xp.any(part != 0, axis=tuple(range(2, part.ndim))), axis=0) for part in parts]
    some = xp.any(xp.reshape(xp.any(xp.stack(empty), axis=0), (gain.shape[0], -1)), axis=1)
    small = xp.nonzero(some & (gain <= tol * problems.scale))[0]
    if small.shape[0] == 0:
        return found.W
    tensors = found.tensors_of(small)
    tidy = problems.take(small).penalty.tidy(xp.take(found.W, tensors, axis=0), found.split.take(tensors))
    kept = np.ones(found.W.shape[0])
    kept[to_numpy(tensors)] = np.any(to_numpy(tidy), axis=tuple(range(1, tidy.ndim)))
    return found.W * move_to(kept.reshape(-1, *(1,) * (tidy.ndim - 1)), found.W, found.W.dtype)


def _parts(n_exact: int, count: int, size: int, *, pilot: bool) -> Iterator[slice]:
    """Cut problems into the exact ones and batches of the others; of many a few come first, whose step suits the others."""
    if n_exact:
        yield slice(0, n_exact)
    for part in chunks(count - n_exact, size):
        start, stop = part.start + n_exact, part.stop + n_exact
        first = _PILOT if pilot and part.start == 0 and stop - start > 4 * _PILOT else 0
        if first:
            yield slice(start, start + first)
        yield slice(start + first, stop)


def _apart(samples: Samples, n_sets: int) -> Iterator[Samples]:
    (block,) = samples.blocks
    K = samples.n_targets // n_sets
    for s in range(n_sets):
        yield Samples.of(replace(block, Y=block.Y[:, s * K : (s + 1) * K]), samples.shape)


# --- judging ----------------------------------------------------------------------------------------------------------


def scored(scorer: Any, model: Any, X: Any, y: Array) -> float:
    """Score one fitted model; NaN where the score is not defined, such as an area under a curve of one class."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        try:
            return float(scorer(model, X, y))
        except AttributeError as error:
            raise ValueError(
                f"Expected a score that fits the model, got another ({error}): choose another one."
            ) from error


def warn_of_zero_weights(model: Any) -> None:
    """Say that no fit had weights: its scores are those of a prediction that ignores the samples."""
    warn(
        f"Expected some weights that are not zero, got none in any fit with alpha={model.alpha}: it is too large for samples in "
        "these units, so decrease it, scale the samples, or leave alpha out.",
        ZeroWeightsWarning,
    )


def check_scores(scores: Array) -> Array:
    """Refuse scores (..., folds) of which some are not defined."""
    refuse(
        not np.all(np.isfinite(scores)),
        "Expected a score on every fold, got NaN or infinity: a fold may lack a class or have one sample, so use fewer folds.",
    )
    return scores


def judged(reading: Reading, scoring: Any, order: Array, scores: Array) -> Array:
    """Score predictions of many models for the same samples, (S,); higher is better.

    Parameters
    ----------
    scoring : as in scikit-learn; None is accuracy for classes and R² for numbers
    order : array of shape (S, m) or (1, m)
        Whose target each sample has.
    scores : array of shape (S, m, K)
        Of linear models, before any link.
    """
    model, codes = reading.model, reading.codes[order]
    default = "accuracy" if model._learns_classes else "r2"
    name = default if scoring is None else scoring
    fast = _FAST.get(name) if isinstance(name, str) else None
    if fast is not None and _kind(model, scores) in fast[0]:
        return fast[1](codes, scores if model._learns_classes else reading.loss.inverse_link(scores))
    scorer = get_scorer(name) if isinstance(name, str) else name
    rows, pairs = np.zeros((scores.shape[1], 1)), zip(scores, np.broadcast_to(order, scores.shape[:2]), strict=True)
    return np.array(
        [scored(scorer, with_scores(model, reading.loss, z), rows, reading.labels[own]) for z, own in pairs]
    )


def _kind(model: Any, scores: Array) -> str:
    return "numbers" if not model._learns_classes else "classes" if scores.shape[2] > 1 else "two classes"


def _accuracy(codes: Array, scores: Array) -> Array:
    return np.asarray(np.mean(predicted_class(scores) == codes, axis=1))


def _balanced(codes: Array, scores: Array) -> Array:
    """Average over the classes that occur how many of each are found."""
    right = predicted_class(scores) == codes
    found = [np.sum(right & (codes == k), axis=1) / np.maximum(np.sum(codes == k, axis=1), 1) for k in np.unique(codes)]
    present = [np.any(codes == k, axis=1) + np.zeros(len(right)) for k in np.unique(codes)]
    return np.asarray(np.sum(found, axis=0) / np.sum(present, axis=0))


def _r_squared(y: Array, found: Array) -> Array:
    """Average over targets the share of the variance that is explained, (S,), as scikit-learn does: NaN of one sample."""
    if y.shape[1] < 2:
        return np.full(len(found), np.nan)
    left = np.sum((y - found) ** 2, axis=1)
    spread = np.sum((y - y.mean(axis=1, keepdims=True)) ** 2, axis=1) + 0.0 * left
    share = np.where(spread > 0, 1.0 - left / np.where(spread > 0, spread, 1.0), np.where(left > 0, 0.0, 1.0))
    return np.asarray(share.mean(axis=1))


def _area(codes: Array, scores: Array) -> Array:
    """Find the area under the ROC curve (S,): how often a positive sample is above a negative one, ties by half."""
    positive = codes > 0
    ranks, count = rankdata(scores[..., 0], axis=1), positive.sum(axis=1)
    others = scores.shape[1] - count
    total = np.sum(ranks * positive, axis=1) - 0.5 * count * (count + 1)
    known = (count > 0) & (others > 0)
    return np.asarray(np.where(known, total / np.where(known, count * others, 1), np.nan))


# Scores of many models at once; all others are asked for one by one.
_FAST: dict[str, tuple[tuple[str, ...], Callable[[Array, Array], Array]]] = {
    "accuracy": (("two classes", "classes"), _accuracy),
    "balanced_accuracy": (("two classes", "classes"), _balanced),
    "roc_auc": (("two classes",), _area),
    "r2": (("numbers",), _r_squared),
    "neg_mean_squared_error": (("numbers",), lambda y, found: -np.mean((y - found) ** 2, axis=(1, 2))),
}
