"""One search: samples in several views, folds, what was looked at so far, and how it is judged."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import nnls
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import get_scorer
from sklearn.utils.metaestimators import available_if

from tracelearn.arrays.array_api import Array, array_namespace, to_numpy
from tracelearn.estimators.base import TraceNormModel
from tracelearn.estimators.scores import r_squared
from tracelearn.features import (
    Convolutions,
    Logarithm,
    ModeWhitener,
    SecondOrder,
    TensorStandardScaler,
    Views,
    find_time_axis,
)
from tracelearn.losses import Loss
from tracelearn.penalties import Blocks, as_penalty, is_overlapped
from tracelearn.samples.samples import Samples
from tracelearn.selection.folds import Design, Folds
from tracelearn.selection.progress import Progress
from tracelearn.selection.search import Candidate, Table, read_alphas, walk, walk_logistic, walk_ridges

__all__ = ["VIEWS", "Session", "parts_of", "possible_views", "shares_of", "with_scores"]

# Views of a sample whose share in the best combination of all is below this are left out, and so are all but the best few.
LEAST_SHARE, MOST_VIEWS = 0.1, 4

# Small sets are split several times: so many samples are held out in all, each at most so often.
HELD_OUT, MOST_REPEATS = 400, 4

FIRST_ORDER = ("raw", "log", "whitened")

# So many samples, drawn at random, tell which views are worth showing.
SCREENED = 400

VIEWS: dict[str, Any] = {
    "raw": lambda axis: None,
    "log": lambda axis: Logarithm(),
    "whitened": lambda axis: ModeWhitener(power=-0.25),
    "second_order": lambda axis: SecondOrder(axis, standardize=True),
    "second_order_difference": lambda axis: SecondOrder(axis, standardize=True, difference=True),
    "second_order_two_windows": lambda axis: SecondOrder(axis, standardize=True, difference=True, windows=2),
    "second_order_three_windows": lambda axis: SecondOrder(axis, standardize=True, difference=True, windows=3),
    "second_order_lags": lambda axis: SecondOrder(axis, standardize=True, lags=3),
    "second_order_slow_lags": lambda axis: SecondOrder(axis, standardize=True, lags=3, lag_step=3),
    "convolutions": Convolutions,
}

# Convolutions have thousands of entries for each channel: they are tried up to so many channels and samples.
_MOST_CONVOLVED, _MOST_SAMPLES = 9, 1000


def possible_views(
    shape: tuple[int, ...], time_axis: Any, *, n: int = 0, positive: bool = False
) -> tuple[list[str], str]:
    """List the views that suit n samples: logarithms where all entries are positive; where a mode can be time, second order,
    and convolutions where channels and samples are few.

    Examples
    --------
    >>> from tracelearn.selection.session import possible_views
    >>> possible_views((6, 11), "auto")[0], possible_views((64, 200), "auto")[0]
    (['raw', 'whitened'], ['raw', 'whitened', 'second_order'])
    """
    if len(shape) < 2:
        return ["raw", "log"] if positive else ["raw"], "samples have one mode"
    names = ["raw", "log", "whitened"] if positive else ["raw", "whitened"]
    axis, reason = (None, "time_axis=None") if time_axis is None else find_time_axis(shape, time_axis)
    if axis is None:
        return names, reason
    times, channels = shape[axis], math.prod(shape) // shape[axis]
    names.append("second_order")
    if channels <= 48:  # copies of channels make matrices larger by their square
        names += ["second_order_difference", "second_order_two_windows"]
    if channels <= 16:
        names += ["second_order_three_windows", "second_order_lags"]
        names += ["second_order_slow_lags"] if times >= 40 else []
    if channels <= _MOST_CONVOLVED and n <= _MOST_SAMPLES:
        names.append("convolutions")
    return names, reason


@dataclass(frozen=True, eq=False)
class _View:
    """Samples as one view, or several in one problem, show them."""

    samples: Samples
    features: Any  # the fitted transformer, or None
    penalty: Any  # Blocks for several views, else None

    @property
    def has_modes(self) -> bool:
        """Whether the modes of a sample are still what they were, so that mode weights mean something."""
        return self.features is None or isinstance(self.features, ModeWhitener | Logarithm)


@dataclass(eq=False)
class Session:
    """One search: samples, folds, and what was looked at so far."""

    cv: Any
    model: TraceNormModel
    samples: Samples
    folds: Folds
    labels: Array
    weight: Array | None
    loss: Loss
    progress: Progress
    n_folds: int
    first_order: str = ""  # the best view that keeps the modes of a sample, where several were screened
    class_map: Array | None = None  # between the scores of all classes, where folds confirm it
    tables: list[Table] = field(default_factory=list)
    _views: dict[str, _View] = field(default_factory=dict)
    _designs: dict[tuple[str, bool], Design] = field(default_factory=dict)

    def view(self, name: str, strengths: tuple[float, ...] = ()) -> _View:
        """See the samples as a view does, or as several do, "a+b"; what a view learns it learns without targets."""
        key = name if not strengths else f"{name} {':'.join(f'{s:g}' for s in strengths)}"
        if key not in self._views:
            self._views[key] = self._seen(name, strengths)
        return self._views[key]

    def _seen(self, name: str, strengths: tuple[float, ...]) -> _View:
        axis = find_time_axis(self.samples.shape, self.cv.time_axis)[0] if self.cv.time_axis is not None else None
        parts = name.split("+")
        unknown = [part for part in parts if part not in VIEWS]
        if unknown:
            raise ValueError(
                f"Expected views among {', '.join(VIEWS)}, got {unknown[0]!r}: join those of one problem by +, as raw+whitened."
            )
        transformers = [VIEWS[part](-1 if axis is None else axis) for part in parts]
        if transformers == [None]:
            return _View(self.samples.rescaled(self.cv._scales(self.samples)), None, None)
        (block,) = self.samples.checked().blocks
        T = array_namespace(block.X).reshape(block.X, (-1, *self.samples.shape))
        features = transformers[0]
        if len(parts) == 1:
            found = features.fit_transform(T, sample_weight=block.weight)
        else:
            features = Views(list(zip(parts, transformers, strict=True)), view_weights=strengths or None)
            fitted = [self._fitted(name, one, T, block.weight) for name, one in zip(parts, transformers, strict=True)]
            found = features._join([one for one, _ in fitted], [part for _, part in fitted], block.weight)
        shape = tuple(found.shape[1:])
        rows = array_namespace(found).reshape(found, (found.shape[0], -1))
        shapes = _blocks(features if len(parts) > 1 else None, transformers, shape)
        penalty = None
        if len(shapes) > 1:
            shape = (rows.shape[1],)
            penalty = Blocks(shapes, tuple(as_penalty(self.cv.penalty, own) for own in shapes))
        return _View(self.samples.mapped_rows(lambda X: rows, shape), features, penalty)

    def _fitted(self, name: str, transformer: Any, T: Array, weight: Array) -> tuple[Any, Array]:
        """Fit the transformer of one view, and transform the samples, unless that was done."""
        if transformer is None:
            return TensorStandardScaler(with_mean=False, with_std=False).fit(T, sample_weight=weight), T
        if name in self._views:
            known = self._views[name]
            return known.features, known.samples.rows
        return transformer, transformer.fit_transform(T, sample_weight=weight)

    def design(self, name: str, strengths: tuple[float, ...], *, joint: bool, screening: bool = False) -> Design:
        """Split a view into folds, once; views are screened with all repeats of the folds."""
        key = (f"{name} {strengths} {screening}", joint)
        if key not in self._designs:
            folds = self.folds if screening else self.folds.first(self.n_folds)
            samples = self.view(name, strengths).samples
            numbers = not self.model._learns_classes
            self._designs[key] = Design(samples, folds, self.loss, joint, self.cv.fit_intercept, numbers)
        return self._designs[key]

    def subset(self, count: int) -> Session:
        """Keep some samples, drawn at random, and the folds of these; all of them where they are no more."""
        n = self.folds.n
        if n <= count:
            return self
        chosen = np.zeros(n, dtype=bool)
        chosen[np.random.default_rng(0).permutation(n)[:count]] = True
        weight = None if self.weight is None else self.weight[chosen]
        return Session(
            self.cv,
            self.model,
            self.samples.take(chosen),
            self.folds.among(chosen),
            self.labels[chosen],
            weight,
            self.loss,
            self.progress,
            self.n_folds,
        )

    def walk_ridges(self, label: str, *, screening: bool = False) -> Table:
        """Try ridge regression alone on a view."""
        name, strengths = parts_of(label)
        design = self.design(name, strengths, joint=False, screening=screening)
        table = walk_ridges(design, label, self.judge(design), by_score=self.cv.scoring is not None)
        if not screening:
            self._keep([table], "ridge regression")
        return table

    def walk_logistic(self, label: str) -> Table | None:
        """Try logistic regression on a view, where that is soon done."""
        design = self.design(*parts_of(label), joint=False)
        table = walk_logistic(design, label, self.judge(design))
        if table is not None:
            self._keep([table], "logistic regression")
        return table

    def _keep(self, tables: list[Table], what: str) -> None:
        self.tables += tables
        best = max(tables, key=lambda table: table.value)
        self.model._report(
            f"{what} on {best.candidate.view}: {best.means[best.best]:.4g} held out, {best.value:.4g} selects"
        )

    def walk(self, label: str, candidates: Sequence[Candidate], begin: float, end: float) -> list[Table]:
        """Walk the paths of candidates of one view, from one share of all work to another."""
        name, strengths = parts_of(label)
        tables: list[Table] = []
        alphas, given = read_alphas(self.cv.alphas, self.cv.eps)
        for joint in dict.fromkeys(candidate.target_mode for candidate in candidates):
            own = [candidate for candidate in candidates if candidate.target_mode == joint]
            view, design = self.view(name, strengths), self.design(name, strengths, joint=joint)
            shape = (design.n_targets, *view.samples.shape) if joint else view.samples.shape
            tables += walk(
                design,
                own,
                alphas,
                self.judge(design),
                by_score=self.cv.scoring is not None,
                shape=shape,
                penalty=self._penalty(view, shape),
                absolute=given,
                max_iter=self.cv.max_iter,
                n_jobs=self.cv.n_jobs,
                progress=self.progress.part(begin, end, f"trace norm on {label}"),
                is_over=self.progress.is_over,
            )
        self._keep(tables, "trace norm")
        return tables

    def _penalty(self, view: _View, shape: tuple[int, ...]) -> Any:
        """Return the penalty of a candidate as a function; None where the search knows it itself."""
        if view.penalty is not None:
            return lambda candidate: view.penalty
        if is_overlapped(self.cv.penalty):
            return None
        return lambda candidate: as_penalty(self.cv.penalty, shape, candidate.mode_weights)

    # --- judging -----------------------------------------------------------------------------------------------------

    def judge(self, design: Design) -> Any:
        """Score what is held out as it is shown: by the user's scorer, by classes found, or for numbers by R²."""

        def judged(f: int, scores: Array) -> Array:
            held, models = design.held[f], range(scores.shape[1])
            if self.cv.scoring is not None:
                scores = to_numpy(scores)
                return np.array([self._scored(held.index, scores[:, m, :]) for m in models])
            if not self.model._learns_classes:
                return np.array(
                    [r_squared(held.Y, self.loss.inverse_link(scores[:, m, :]), held.share) for m in models]
                )
            right = _classes(scores) == _classes(held.Y)[:, None]
            return to_numpy(held.share @ array_namespace(scores).astype(right, held.share.dtype))

        return judged

    def _scored(self, index: Array, scores: Array) -> float:
        """Ask the user's scorer, which sees an estimator that has these scores."""
        scoring = self.cv.scoring
        scorer = get_scorer(scoring) if isinstance(scoring, str) else scoring
        fixed = with_scores(self.model, self.loss, scores)
        weight = {} if self.weight is None else {"sample_weight": self.weight[index]}
        rows = np.zeros((len(index), 1))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndefinedMetricWarning)  # a fold without a score is left out below
            try:
                return float(scorer(fixed, rows, self.labels[index], **weight))
            except TypeError:
                if not weight:
                    raise
            return float(scorer(fixed, rows, self.labels[index]))


def parts_of(label: str) -> tuple[str, tuple[float, ...]]:
    """Read the label of a view, such as "raw+lagged 1:2"."""
    name, _, ratio = label.partition(" ")
    return name, tuple(float(s) for s in ratio.split(":")) if ratio else ()


def _classes(scores: Array) -> Array:
    return scores[..., 0] > 0 if scores.shape[-1] == 1 else array_namespace(scores).argmax(scores, axis=-1)


def _blocks(union: Any, transformers: list[Any], shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Find the shapes of the blocks that have a norm of their own: views, and the windows of a view."""
    found: list[tuple[int, ...]] = []
    shapes = [shape] if union is None else union.view_shapes_
    for own, transformer in zip(shapes, transformers, strict=True):
        windows = getattr(transformer, "windows", 1)
        found += [own] if windows == 1 else [own[1:]] * windows
    return tuple(found)


def shares_of(scores: list[Array], Y: Array) -> Array:
    """Combine held-out scores of several views with weights that are not negative; return their shares."""
    centred = np.stack([(part - part.mean(axis=0)).ravel() for part in scores], axis=1)
    size = centred.std(axis=0)
    found, _ = nnls(centred / np.where(size > 0, size, 1.0), (Y - Y.mean(axis=0)).ravel())
    return np.asarray(found / found.sum() if found.sum() > 0 else np.arange(len(scores)) == 0, dtype=float)


class _Fixed(BaseEstimator):
    """An estimator whose scores of some samples are known: what a scorer looks at."""

    def __init__(self, scores: Array, loss: Any, classes: Array | None, single: bool) -> None:
        self.scores, self.loss, self.classes_, self.single = scores, loss, classes, single

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict(self, X: Any) -> Array:
        if self.classes_ is None:
            found = self.loss.inverse_link(self.scores)
            return found[:, 0] if self.single else found
        return self.classes_[np.asarray(_classes(self.scores), dtype=int)]


class _FixedRegressor(RegressorMixin, _Fixed):
    pass


class _FixedClassifier(ClassifierMixin, _Fixed):
    def decision_function(self, X: Any) -> Array:
        return self.scores[:, 0] if self.scores.shape[1] == 1 else self.scores

    @available_if(lambda self: self.loss.has_probabilities)
    def predict_proba(self, X: Any) -> Array:
        return np.exp(self.loss.log_probabilities(self.scores))


def with_scores(model: Any, loss: Loss, scores: Array) -> Any:
    """Make an estimator that has given scores (n, K) of some samples, for a scorer to look at."""
    if model._learns_classes:
        return _FixedClassifier(scores, loss, to_numpy(model.classes_), True)
    return _FixedRegressor(scores, loss, None, model._single)
