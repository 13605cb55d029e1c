"""How samples look to a loss: the smooth half of all of them and of each fold, and a judge of what the fold holds out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from typing import Any, Protocol

import numpy as np
from sklearn.metrics import get_scorer

from tracelearn.arrays.array_api import Array, array_namespace, is_foreign, is_sparse, to_numpy
from tracelearn.estimators.base import Batch, TraceNormModel, moments_scales
from tracelearn.moments import Moments
from tracelearn.problems.smooth import DataLoss, Smooth, Squares
from tracelearn.selection.blocks import FoldedBlocks
from tracelearn.selection.path import PathPoint
from tracelearn.selection.search import Candidate, Fold, View

__all__ = ["BatchViews", "BlockViews", "Judging", "Splits", "Views", "check_fold_weights", "fold_of"]

Splits = list[tuple[Array, Array]]

# Numbers in the samples, times classes, up to which "auto" tries the logistic loss as well.
_SECOND_LOSS = 5_000_000


class Views(Protocol):
    """What the search asks of samples, wherever they are."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""

    @property
    def n_targets(self) -> int:
        """The number K of targets."""

    @property
    def total(self) -> Moments | None:
        """The moments of all samples, where the squared loss is read from moments."""

    def of(self, loss: str, *, scaled: bool) -> View | None:
        """See the samples as a loss does, scaled or not; None where they cannot be seen so."""


@dataclass(frozen=True, eq=False)
class Judging:
    """What the estimator knows of models and scores: new models for a loss, targets coded for them, the user's scorer."""

    new_model: Callable[[str], TraceNormModel]
    coded: Callable[[TraceNormModel, Batch], Batch]
    known: dict[str, Any]  # what a fitted model was told beside its weights
    scoring: Any
    fit_intercept: bool
    compares_losses: bool

    def judge(self, model: TraceNormModel, held: Batch, labels: Array) -> Callable[[PathPoint], float]:
        """Judge by the mean loss on held-out samples, or by minus the score of the user's scorer."""
        if self.scoring is None:
            return _mean_loss(model, held)
        scorer = get_scorer(self.scoring) if isinstance(self.scoring, str) else self.scoring
        return lambda point: -float(scorer(self._fixed(model.loss, point, held), held.X, labels))

    def _fixed(self, loss: str, point: PathPoint, held: Batch) -> TraceNormModel:
        """Make a fitted model of one point of a path, for a scorer to look at."""
        model = self.new_model(loss)
        for name, value in self.known.items():
            setattr(model, name, value)
        model.sample_shape_, model.n_features_in_ = (held.X.shape[1],), held.X.shape[1]
        model.coef_, model.intercept_ = model._shaped(point.W, model.sample_shape_), model._scalar(point.intercept)
        model.tensor_shape = None
        if is_foreign(held.X):
            # Scorers are for NumPy: the samples stay where they are, and only what is predicted comes to the processor.
            for name in ("predict", "decision_function", "predict_proba"):
                if hasattr(model, name):
                    setattr(model, name, _at_host(getattr(model, name)))
        return model


@dataclass(frozen=True, eq=False)
class Summaries:
    """The moments of what each fold holds out and of what it trains on, and those of all samples."""

    held: list[Moments]
    training: list[Moments]
    total: Moments

    @classmethod
    def of_partition(cls, held: list[Moments]) -> Summaries:
        """Let each fold train on the others."""
        # A sum of the other folds: a difference from the total would leave their rounding errors in.
        return cls(held, [_sum(held[:f] + held[f + 1 :]) for f in range(len(held))], _sum(held))

    @classmethod
    def of_batch(cls, batch: Batch, splits: Splits) -> Summaries:
        """Summarise every fold; where each sample is held out once, the samples are read once."""
        held = [batch.take(test).moments() for _, test in splits]
        n = batch.X.shape[0]
        covered = np.zeros(n, dtype=int)
        for _, test in splits:
            covered[test] += 1
        if np.all(covered == 1) and all(len(train) + len(test) == n for train, test in splits):
            return cls.of_partition(held)
        return cls(held, [batch.take(train).moments() for train, _ in splits], batch.moments())

    def view(
        self,
        shape: tuple[int, ...],
        judges: list[Callable[[PathPoint], float]] | None = None,
        hits: list[Callable[[PathPoint], float]] | None = None,
        *,
        centre: bool,
        scaled: bool,
    ) -> View:
        """See them as folds, judged by the squared error on what is held out unless there are judges."""
        scales = moments_scales(self.total, shape) if scaled else None
        judges = [_squared_error(one) for one in self.held] if judges is None else judges
        folds = []
        for f, (past, held) in enumerate(zip(self.training, self.held, strict=True)):
            smooth = _of_moments(past if scales is None else past.rescaled(scales), centre=centre, spectral=True)
            counted = None if hits is None else _unscaled(hits[f], scales)
            folds.append(Fold(smooth, _unscaled(judges[f], scales), held.weight, counted))
        whole = self.total if scales is None else self.total.rescaled(scales)
        return View(_of_moments(whole, centre=centre, spectral=False), folds)


@dataclass(frozen=True, eq=False)
class BatchViews:
    """Views of samples in memory: through moments where they hold all, else through the samples themselves."""

    batch: Batch
    labels: Array
    splits: Splits
    judging: Judging
    _seen: dict[tuple[str, bool], View | None] = field(default_factory=dict, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return self.batch.shape

    @property
    def n_targets(self) -> int:
        """The number K of targets."""
        return int(self.batch.Y.shape[1])

    @property
    def is_small(self) -> bool:
        """Whether a loss that needs the samples at every step can be tried in seconds to minutes."""
        X = self.batch.X
        return not is_sparse(X) and math.prod(X.shape) * self.n_targets <= _SECOND_LOSS

    @property
    def total(self) -> Moments | None:
        """The moments of all samples, where the squared loss is read from moments."""
        return self._summaries.total if self.batch.form(has_moments=True).name == "moments" else None

    @cached_property
    def _summaries(self) -> Summaries:
        squared = self.judging.new_model("squared")
        return Summaries.of_batch(self.judging.coded(squared, self.batch), self.splits)

    def of(self, loss: str, *, scaled: bool) -> View | None:
        """See the samples as a loss does, and remember it: products and eigenvectors are dear."""
        if (loss, scaled) not in self._seen:
            self._seen[loss, scaled] = self._of(loss, scaled=scaled)
        return self._seen[loss, scaled]

    def _of(self, loss: str, *, scaled: bool) -> View | None:
        """Look at the samples; sparse ones cannot be scaled."""
        if scaled and is_sparse(self.batch.X):
            return None
        judging, splits = self.judging, self.splits
        model = judging.new_model(loss)
        batch = judging.coded(model, self.batch)
        form = batch.form(has_moments=loss == "squared")
        compared = judging.compares_losses and self.is_small
        hits = [_hits(batch.take(test)) for _, test in splits] if compared else None
        if form.name == "moments":
            judges = None
            if judging.scoring is not None:
                judges = [judging.judge(model, batch.take(test), self.labels[test]) for _, test in splits]
            return self._summaries.view(self.shape, judges, hits, centre=judging.fit_intercept, scaled=scaled)
        # As the moments of all samples do, their scale looks at no target: it tells nothing of what is held out.
        scales = batch.widened().scales() if scaled else None
        seen = batch if scales is None else batch.widened().rescaled(scales)
        folds = []
        for f, (train, test) in enumerate(splits):
            held = seen.take(test)
            judge = judging.judge(model, held, self.labels[test])
            counted = None if hits is None else _unscaled(hits[f], scales)
            folds.append(Fold(_of_rows(model, seen.take(train), form.name), judge, held.total, counted))
        return View(_of_rows(model, seen, form.name), folds)


@dataclass(frozen=True, eq=False)
class BlockViews:
    """Views of samples that come in blocks; the moments of all folds come from one pass."""

    model: TraceNormModel
    found: FoldedBlocks
    _seen: dict[tuple[str, bool], View | None] = field(default_factory=dict, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return self.found.reader.shape

    @property
    def n_targets(self) -> int:
        """The number K of targets."""
        return self.found.reader.n_targets

    @property
    def total(self) -> Moments | None:
        """The moments of all samples, where the squared loss is read from moments."""
        return self._summaries.total if self.found.form.name == "moments" else None

    @cached_property
    def _summaries(self) -> Summaries:
        return Summaries.of_partition(self.found.moments())

    def of(self, loss: str, *, scaled: bool) -> View | None:
        """See the blocks as a loss does, and remember it: passes are dear."""
        if (loss, scaled) not in self._seen:
            self._seen[loss, scaled] = self._of(loss, scaled=scaled)
        return self._seen[loss, scaled]

    def _of(self, loss: str, *, scaled: bool) -> View | None:
        """Look at the blocks as the loss of the model does; only moments can be scaled."""
        found, model = self.found, self.model
        if found.form.name == "moments":
            return self._summaries.view(self.shape, centre=model.fit_intercept, scaled=scaled)
        if scaled or loss != model.loss:
            return None

        def smooth(fold: int | None) -> Callable[[Candidate], Smooth]:
            return _kept(lambda joint: found.smooth(model, fold, joint=joint))

        folds = [Fold(smooth(f), found.judge(model, f), found.weight(f)) for f in range(found.n_folds)]
        return View(smooth(None), folds)


# --- the smooth half -------------------------------------------------------------------------------------------------


def _of_moments(moments: Moments, *, centre: bool, spectral: bool) -> Callable[[Candidate], Smooth]:
    past = moments if centre else moments.uncentred()
    shared = Squares.of(past, spectral=spectral)  # one eigendecomposition for all candidates and all alphas

    def smooth(candidate: Candidate) -> Smooth:
        joint = Squares.of(past, joint=candidate.class_mode)
        return replace(joint, system=shared.system, ridge=_filled(joint.ridge, candidate.ridge))

    return smooth


def _of_rows(model: TraceNormModel, batch: Batch, form: str) -> Callable[[Candidate], Smooth]:
    return _kept(lambda joint: model._smooth(batch, form, joint=joint, spectral=True))


def _kept(build: Callable[[bool], Squares | DataLoss]) -> Callable[[Candidate], Smooth]:
    """Build the smooth half once with classes as a mode and once without, whatever the ridge."""
    kept: dict[bool, Squares | DataLoss] = {}

    def smooth(candidate: Candidate) -> Smooth:
        joint = candidate.class_mode
        if joint not in kept:
            kept[joint] = build(joint)
        found: Smooth = replace(kept[joint], ridge=_filled(kept[joint].ridge, candidate.ridge))
        return found

    return smooth


def _filled(like: Array, value: float) -> Array:
    return array_namespace(like).full_like(like, value)


# --- judges ----------------------------------------------------------------------------------------------------------


def _squared_error(held: Moments) -> Callable[[PathPoint], float]:
    xp = array_namespace(held.gram)
    return lambda point: float(xp.mean(held.squared_error(point.W, point.intercept)))


def _mean_loss(model: TraceNormModel, held: Batch) -> Callable[[PathPoint], float]:
    loss, held, share = model._loss(held.Y.shape[1]), held.widened(), held.share
    xp = array_namespace(share)

    def mean_loss(point: PathPoint) -> float:
        values = share @ loss.value(held.Y, held.X @ point.W.T + point.intercept)
        return float(xp.sum(values)) / float(held.Y.shape[1])

    return mean_loss


def _hits(held: Batch) -> Callable[[PathPoint], float]:
    """Count the share of held-out samples whose class is found."""
    held, share = held.widened(), held.share
    xp = array_namespace(share)

    def codes(scores: Array) -> Array:
        return scores[:, 0] > 0 if scores.shape[1] == 1 else xp.argmax(scores, axis=1)

    truth = codes(held.Y)
    return lambda point: float(
        xp.sum(xp.where(codes(held.X @ point.W.T + point.intercept) == truth, share, xp.zeros_like(share)))
    )


def _unscaled(function: Callable[[PathPoint], float], scales: Array | None) -> Callable[[PathPoint], float]:
    """Show weights of scaled samples, as those of samples as they are, to what looks at these."""
    return function if scales is None else lambda point: function(replace(point, W=point.W / scales))


def _at_host(method: Callable[[Any], Array]) -> Callable[[Any], Array]:
    @wraps(method)
    def at_host(X: Any) -> Array:
        return to_numpy(method(X))

    return at_host


# --- splits ----------------------------------------------------------------------------------------------------------


def check_fold_weights(splits: Splits, weight: Array | None) -> None:
    """Refuse a fold that has nothing to learn from, or nothing to judge by."""
    if weight is None:
        return
    for f, parts in enumerate(splits):
        if not all(np.any(weight[part]) for part in parts):
            raise ValueError(
                f"Expected some sample weight inside and outside of every fold, got only zeros on one side of fold {f + 1}: "
                "drop samples of weight zero, shuffle the folds, or use fewer of them."
            )


def fold_of(splits: Splits, n: int) -> Array:
    """Find for every sample the fold that holds it out."""
    found = np.full(n, -1, dtype=np.int16)
    for f, (_, test) in enumerate(splits):
        found[test] = f
    held = sum(len(test) for _, test in splits)
    if held != n or np.any(found < 0) or any(len(train) + len(test) != n for train, test in splits):
        raise ValueError(
            "Expected folds that hold out every sample exactly once where samples are read in blocks, got other ones: use "
            "KFold, StratifiedKFold, GroupKFold or the like."
        )
    return found


def _sum(parts: Sequence[Moments]) -> Moments:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
