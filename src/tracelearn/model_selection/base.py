"""The search that both CV estimators share: candidates, folds, paths, the choice.

With the squared loss the samples are read once: moments of each fold, training moments as the sum of the others, held-out
errors from the held-out moments. A whole path for each candidate and each fold needs no further look at the data.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from itertools import product
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator
from sklearn.metrics import get_scorer
from sklearn.model_selection import check_cv
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays import free_memory, is_foreign, move_to, to_numpy
from tracelearn.engine import Blocks
from tracelearn.estimators.base import Batch, TraceNormModel
from tracelearn.estimators.blocks import all_targets, fit_blocks, gathered_or_blocks, tell
from tracelearn.forms import choose_form
from tracelearn.model_selection.blocks import FoldedBlocks
from tracelearn.moments import Moments
from tracelearn.path import PathPoint, alpha_grid, walk_path
from tracelearn.penalties import Penalty
from tracelearn.smooth import DataLoss, Smooth, Squares
from tracelearn.solvers import SOLVERS
from tracelearn.tensors import Array, array_namespace

# Held-out errors differ by far more than this between neighbouring alphas: paths need no tighter gap to choose one.
_PATH_TOL = 1e-4


@dataclass(frozen=True)
class Candidate:
    """What is tried beside alpha: mode weights, ridge, and whether classes are a mode."""

    mode_weights: tuple[float, ...] | None
    ridge: float
    class_mode: bool


@dataclass(frozen=True, eq=False)
class Fold:
    """One split: the smooth half of the training samples, and how to judge weights on the held-out ones."""

    smooth: Callable[[Candidate], Smooth]
    judge: Callable[[PathPoint], float]
    weight: float


class SelectionCV(BaseEstimator):
    """What both CV estimators share: the search, and delegation to the model that was found."""

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 - scikit-learn's convention
        **{
            name: TraceNormModel._parameter_constraints[name]
            for name in ("penalty", "fit_intercept", "tensor_shape", "tol", "max_iter", "random_state", "verbose")
        },
        "alphas": ["array-like", Interval(Integral, 1, None, closed="left")],
        "eps": [Interval(Real, 0, 1, closed="neither")],
        "ridges": ["array-like"],
        "mode_weights": ["array-like", StrOptions({"auto"}), None],
        "class_mode": ["boolean", StrOptions({"auto"})],
        "cv": ["cv_object"],
        "scoring": [StrOptions(set()), callable, str, None],
        "one_standard_error": ["boolean"],
        "n_jobs": [Integral, None],
    }

    def _new_model(self, **chosen: Any) -> TraceNormModel:
        raise NotImplementedError

    def _labels(self, model: TraceNormModel, batch: Batch, y: Any) -> Array:
        raise NotImplementedError

    # --- the search --------------------------------------------------------------------------------------------------

    def _candidates(self, shape: tuple[int, ...], n_targets: int) -> list[Candidate]:
        """List what to try; "auto" mode weights are equal ones and each mode alone."""
        modes = [False, True] if self.class_mode == "auto" else [bool(self.class_mode)]
        modes = [mode and n_targets > 1 for mode in modes]
        found = []
        for class_mode in dict.fromkeys(modes):
            order = len(shape) + class_mode
            for weights, ridge in product(self._weight_candidates(order), np.atleast_1d(self.ridges)):
                found.append(Candidate(weights, float(ridge), class_mode))
        return found

    def _weight_candidates(self, order: int) -> list[tuple[float, ...] | None]:
        if self.mode_weights is None or (
            isinstance(self.mode_weights, str) and (order <= 2 or self.penalty != "overlapped")
        ):
            return [None]  # at order 2 all weights give one norm, and latent norms choose their mode themselves
        if isinstance(self.mode_weights, str):
            return [None, *(tuple(float(n == mode) for n in range(order)) for mode in range(order))]
        given = list(self.mode_weights)
        lists = [given] if np.ndim(given[0]) == 0 else given
        return [None if weights is None else tuple(float(weight) for weight in weights) for weights in lists]

    def _select_and_fit(self, X: Any, y: Any, sample_weight: Any, groups: Any, *, classifier: bool) -> Self:
        """Choose by cross-validation, then learn from all samples."""
        model = self._new_model()
        found = gathered_or_blocks(model, X, y, sample_weight)
        if isinstance(found, Blocks):
            self._fit_blocks(model, found, groups, classifier=classifier)
            return self
        batch = model._read(*found, reset=True)
        labels = self._labels(model, batch, found[1])
        splits = self._splits(labels, groups, classifier=classifier)
        _check_fold_weights(splits, None if batch.weight is None else to_numpy(batch.weight))
        whole, folds = self._folds(model, batch, splits, labels)
        chosen = self._search(model, batch.shape, batch.Y.shape[1], whole, folds)
        self._finish(model, batch.shape, chosen, lambda best: best._fit_batch(batch))
        return self

    def _search(
        self,
        model: TraceNormModel,
        shape: tuple[int, ...],
        n_targets: int,
        whole: Callable[[Candidate], Smooth],
        folds: list[Fold],
    ) -> Candidate:
        """Find the best candidate and alpha; set the attributes that describe the search."""
        candidates = self._candidates(shape, n_targets)

        def penalty_of(candidate: Candidate) -> Penalty:
            return self._sized(model, candidate)._penalty(shape, n_targets)

        grids = [alpha_grid(whole(c), penalty_of(c), self.alphas, self.eps) for c in candidates]
        began, tasks = time.perf_counter(), [(f, c) for f in range(len(folds)) for c in range(len(candidates))]

        def run(number: int, f: int, c: int) -> Array:
            penalty = penalty_of(candidates[c])
            tol = max(self.tol, _PATH_TOL)
            smooth = folds[f].smooth(candidates[c])
            solver = SOLVERS[smooth.best_solver]
            points = walk_path(smooth, penalty, grids[c], solver, tol=tol, max_iter=self.max_iter, exact_ranks=False)
            errors = np.array([folds[f].judge(point) for point in points])
            left = (time.perf_counter() - began) / (number + 1) * (len(tasks) - number - 1)
            model._say(f"fold {f + 1} of {len(folds)}, {candidates[c]}: about {left:.0f} s left")
            return errors

        jobs = (delayed(run)(number, f, c) for number, (f, c) in enumerate(tasks))
        errors = Parallel(n_jobs=self.n_jobs, prefer="threads")(jobs)
        tables = np.array(errors).reshape(len(folds), len(candidates), -1).transpose(1, 2, 0)
        return self._select(candidates, grids, tables, np.array([fold.weight for fold in folds]))

    @staticmethod
    def _sized(model: TraceNormModel, candidate: Candidate) -> TraceNormModel:
        """Make a model of the candidate's mode weights and class mode."""
        return type(model)(penalty=model.penalty, mode_weights=candidate.mode_weights, class_mode=candidate.class_mode)

    def _select(self, candidates: list[Candidate], grids: list[Array], tables: Array, weights: Array) -> Candidate:
        """Choose the lowest mean error, or with the one-standard-error rule the largest alpha that is as good."""
        means = tables @ (weights / weights.sum())
        spread = (
            np.std(tables, axis=2, ddof=1) / np.sqrt(tables.shape[2]) if tables.shape[2] > 1 else np.zeros_like(means)
        )
        best, at = (int(i) for i in np.unravel_index(int(np.argmin(means)), means.shape))
        if self.one_standard_error:
            at = int(np.argmax(means[best] <= means[best, at] + spread[best, at]))
        chosen = candidates[best]
        self.alphas_, self.alpha_ = grids[best], float(grids[best][at])
        self.ridge_, self.mode_weights_, self.class_mode_ = chosen.ridge, chosen.mode_weights, chosen.class_mode
        sign = 1.0 if self.scoring is None else -1.0
        self.mse_path_ = sign * tables[best]
        self.best_score_, self.best_score_std_ = float(-means[best, at]), float(spread[best, at])
        self.cv_results_ = {
            "candidates": [
                {"mode_weights": c.mode_weights, "ridge": c.ridge, "class_mode": c.class_mode} for c in candidates
            ],
            "alphas": np.array(grids),
            "mean_error": sign * means,
            "standard_error": spread,
        }
        return chosen

    # --- the folds ---------------------------------------------------------------------------------------------------

    def _folds(
        self, model: TraceNormModel, batch: Batch, splits: list[tuple[Array, Array]], labels: Array
    ) -> tuple[Callable[[Candidate], Smooth], list[Fold]]:
        """Read the samples once and return the smooth half of all of them, and the folds."""
        n, p = batch.X.shape
        form = choose_form(n, p, has_moments=self.loss == "squared", memory=free_memory(batch.X))
        model._say(f"{form.name}: {form.reason}")
        if form.name == "moments":
            return self._moment_folds(batch, splits, labels)
        whole = self._rows_smooth(model, batch, form.name)
        folds = []
        for train, test in splits:
            smooth = self._rows_smooth(model, batch.take(train), form.name)
            folds.append(Fold(smooth, self._judge(model, batch.take(test), labels[test]), batch.take(test).total))
        return whole, folds

    def _moment_folds(
        self, batch: Batch, splits: list[tuple[Array, Array]], labels: Array
    ) -> tuple[Callable[[Candidate], Smooth], list[Fold]]:
        held = [batch.take(test).moments() for _, test in splits]
        n = batch.X.shape[0]
        covered = np.zeros(n, dtype=int)
        for _, test in splits:
            covered[test] += 1
        partition = bool(np.all(covered == 1)) and all(len(train) + len(test) == n for train, test in splits)
        judges = None
        if self.scoring is not None:
            judges = [self._judge(None, batch.take(test), labels[test]) for _, test in splits]
        if partition:
            return self._held_folds(held, judges)
        training = [batch.take(train).moments() for train, _ in splits]
        return self._held_folds(held, judges, training, batch.moments())

    def _held_folds(
        self,
        held: list[Moments],
        judges: list[Callable[[PathPoint], float]] | None = None,
        training: list[Moments] | None = None,
        total: Moments | None = None,
    ) -> tuple[Callable[[Candidate], Smooth], list[Fold]]:
        """Make folds of held-out moments; the others' sum is what each trains on, unless it is given."""
        if training is None:
            # A sum of the other folds: a difference from the total would leave their rounding errors in.
            training = [_sum(held[:f] + held[f + 1 :]) for f in range(len(held))]
        self._total = _sum(held) if total is None else total
        judges = [self._moment_judge(one) for one in held] if judges is None else judges
        folds = [
            Fold(self._moment_smooth(past, spectral=True), judge, one.weight)
            for past, judge, one in zip(training, judges, held, strict=True)
        ]
        return self._moment_smooth(self._total, spectral=False), folds

    def _fit_blocks(self, model: TraceNormModel, blocks: Blocks, groups: Any, *, classifier: bool) -> None:
        """Do the same with samples that come in blocks; with the squared loss in one pass."""
        if self.scoring is not None or not blocks.repeatable:
            got = "an iterator" if self.scoring is None else f"scoring={self.scoring!r}"
            raise ValueError(
                f"Expected scoring=None and samples that can be read more than once where they are read in blocks, got {got}: "
                "use the loss to select, and pass arrays, files or a list of batches."
            )
        y, weight = all_targets(blocks)
        splits = self._splits(y, groups, classifier=classifier)
        _check_fold_weights(splits, weight)
        fold_of = _fold_of(splits, len(y))
        found = FoldedBlocks.of(model, blocks, fold_of, y, weight)
        tell(found.reader.model, model)
        if found.form.name == "moments":
            whole, folds = self._held_folds(found.moments())
        else:

            def smooth(fold: int | None) -> Callable[[Candidate], Smooth]:
                return _kept(lambda joint: found.smooth(model, fold, joint=joint))

            whole = smooth(None)
            folds = [Fold(smooth(f), found.judge(model, f), found.weight(f)) for f in range(found.n_folds)]
        chosen = self._search(model, found.reader.shape, found.reader.n_targets, whole, folds)
        self._finish(model, found.reader.shape, chosen, lambda best: fit_blocks(best, blocks))

    def _moment_smooth(self, moments: Moments, *, spectral: bool) -> Callable[[Candidate], Smooth]:
        past = moments if self.fit_intercept else moments.uncentred()
        shared = Squares.of(past, spectral=spectral)  # one eigendecomposition for all candidates and all alphas

        def smooth(candidate: Candidate) -> Smooth:
            joint = Squares.of(past, joint=candidate.class_mode)
            return replace(joint, system=shared.system, ridge=_filled(joint.ridge, candidate.ridge))

        return smooth

    def _moment_judge(self, held: Moments) -> Callable[[PathPoint], float]:
        xp = array_namespace(held.gram)
        return lambda point: float(xp.mean(held.squared_error(point.W, point.intercept)))

    def _rows_smooth(self, model: TraceNormModel, batch: Batch, form: str) -> Callable[[Candidate], Smooth]:
        return _kept(lambda joint: model._smooth(batch, form, joint=joint, spectral=True))

    def _judge(self, model: TraceNormModel | None, held: Batch, labels: Array) -> Callable[[PathPoint], float]:
        """Judge by the mean loss on held-out samples, or by minus the score of the user's scorer."""
        if self.scoring is None:
            assert model is not None
            loss, held, share = model._loss(held.Y.shape[1]), held.widened(), held.share
            xp = array_namespace(share)

            def mean_loss(point: PathPoint) -> float:
                values = share @ loss.value(held.Y, held.X @ point.W.T + point.intercept)
                return float(xp.sum(values)) / float(held.Y.shape[1])

            return mean_loss
        scorer = get_scorer(self.scoring) if isinstance(self.scoring, str) else self.scoring

        def minus_score(point: PathPoint) -> float:
            return -float(scorer(self._fixed(point, held), held.X, labels))

        return minus_score

    def _fixed(self, point: PathPoint, held: Batch) -> TraceNormModel:
        """Make a fitted model of one point of a path, for a scorer to look at."""
        model = self._new_model()
        for name, value in self._known.items():
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

    # --- the model that was found ------------------------------------------------------------------------------------

    def _finish(
        self,
        model: TraceNormModel,
        shape: tuple[int, ...],
        chosen: Candidate,
        fit: Callable[[TraceNormModel], None],
    ) -> None:
        best = self._new_model(
            alpha=self.alpha_, ridge=chosen.ridge, mode_weights=chosen.mode_weights, class_mode=chosen.class_mode
        )
        known = ("n_features_in_", "feature_names_in_", "classes_", "_single", "_dtype")
        for name in known:
            if hasattr(model, name):
                setattr(best, name, getattr(model, name))
        total = self.__dict__.pop("_total", None)
        if total is not None:
            best._fit_moments(total, shape, warm=False)
        else:
            fit(best)
        self.best_estimator_ = best
        for name in (
            "coef_",
            "intercept_",
            "n_iter_",
            "objective_",
            "dual_gap_",
            "patterns_",
            "sample_shape_",
            "moments_",
        ):
            if hasattr(best, name):
                setattr(self, name, getattr(best, name))
        for name in known[:3]:
            if hasattr(best, name):
                setattr(self, name, getattr(best, name))
        self.alphas_, self.mse_path_ = (
            move_to(a, best.coef_, best.coef_.dtype) for a in (self.alphas_, self.mse_path_)
        )
        self.__dict__.pop("_known", None)

    @property
    def mode_ranks_(self) -> Array:
        """The rank of the weights in each mode."""
        check_is_fitted(self)
        return self.best_estimator_.mode_ranks_

    @property
    def mode_factors_(self) -> list[tuple[Array, Array]]:
        """For each mode, orthonormal factors and singular values of the weights' unfolding."""
        check_is_fitted(self)
        return self.best_estimator_.mode_factors_

    @property
    def convergence_(self) -> Array:
        """Iteration and relative duality gap at every check, on the way to the model that was found."""
        check_is_fitted(self)
        return self.best_estimator_.convergence_

    def predict(self, X: Any) -> Array:
        """Predict each sample with the model that was found."""
        check_is_fitted(self)
        return self.best_estimator_.predict(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Score the model that was found, as it does itself."""
        check_is_fitted(self)
        return float(self.best_estimator_.score(X, y, sample_weight))

    def _splits(self, y: Array, groups: Any, *, classifier: bool) -> list[tuple[Array, Array]]:
        splitter = check_cv(self.cv, y, classifier=classifier)
        return list(splitter.split(np.zeros(len(y)), y, None if groups is None else to_numpy(groups)))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.sparse = True
        tags.array_api_support = True
        return tags


def _filled(like: Array, value: float) -> Array:
    return array_namespace(like).full_like(like, value)


def _at_host(method: Callable[[Any], Array]) -> Callable[[Any], Array]:
    @wraps(method)
    def at_host(X: Any) -> Array:
        return to_numpy(method(X))

    return at_host


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


def _check_fold_weights(splits: list[tuple[Array, Array]], weight: Array | None) -> None:
    """Refuse a fold that has nothing to learn from, or nothing to judge by."""
    if weight is None:
        return
    for f, parts in enumerate(splits):
        if not all(np.any(weight[part]) for part in parts):
            raise ValueError(
                f"Expected some sample weight inside and outside of every fold, got only zeros on one side of fold {f + 1}: "
                "drop samples of weight zero, shuffle the folds, or use fewer of them."
            )


def _fold_of(splits: list[tuple[Array, Array]], n: int) -> Array:
    """Find for every sample the fold that holds it out."""
    fold_of = np.full(n, -1, dtype=np.int16)
    for f, (_, test) in enumerate(splits):
        fold_of[test] = f
    held = sum(len(test) for _, test in splits)
    if held != n or np.any(fold_of < 0) or any(len(train) + len(test) != n for train, test in splits):
        raise ValueError(
            "Expected folds that hold out every sample exactly once where samples are read in blocks, got other ones: use "
            "KFold, StratifiedKFold, GroupKFold or the like."
        )
    return fold_of


def _sum(parts: Sequence[Moments]) -> Moments:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
