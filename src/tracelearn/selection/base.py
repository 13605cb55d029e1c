"""The search that both CV estimators share: one question after the other, then the choice.

With the squared loss the samples are read once: moments of each fold, training moments as the sum of the others, held-out
errors from the held-out moments. A whole path for each candidate and each fold needs no further look at the data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.model_selection import check_cv
from sklearn.utils import Tags
from sklearn.utils._metadata_requests import _raise_for_params
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import Array, array_namespace, is_foreign, move_to, to_numpy
from tracelearn.estimators.base import Batch, TraceNormModel, check_dense
from tracelearn.estimators.blocks import all_targets, check_block_scaling, fit_blocks, gathered_or_blocks, tell
from tracelearn.samples.checks import check_place
from tracelearn.samples.execution import Blocks
from tracelearn.selection.blocks import FoldedBlocks
from tracelearn.selection.path import alpha_grid
from tracelearn.selection.search import Candidate, Table, Way, best_ridge, walk
from tracelearn.selection.views import (
    BatchViews,
    BlockViews,
    Judging,
    Splits,
    Views,
    check_fold_weights,
    fold_of,
)

# Held-out errors differ by far more than this between neighbouring alphas: paths need no tighter gap to choose one. Losses
# that need the samples at every step pay for each digit.
_PATH_TOL, _DATA_PATH_TOL = 1e-4, 1e-3

# Where a path of such a loss takes more iterations alpha is far below what held-out samples ask for.
_DATA_PATH_ITERATIONS = 300

# The bound of the logistic loss's curvature is reached at scores of zero; where classes are told apart it is far below.
_LOGISTIC_SHARE = 0.1

# How many alphas a second loss is tried with, at least: four decades in steps of a factor of three.
_LEAST_ALPHAS = 10

# How often a ridge is eased: a hundredth of it is hardly one, and the path without any is walked as well.
_EASINGS = 2

# What is learned before the search and belongs to the model as well; and what the model has learned and is shown here too.
_READ = ("n_features_in_", "feature_names_in_", "classes_", "_single", "_dtype")
_SHOWN = ("coef_", "intercept_", "n_iter_", "objective_", "dual_gap_", "patterns_", "sample_shape_", "moments_")


class SelectionCV(BaseEstimator):
    """What both CV estimators share: the search, and delegation to the model that was found."""

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 - scikit-learn's convention
        **{
            name: TraceNormModel._parameter_constraints[name]
            for name in ("penalty", "fit_intercept", "tensor_shape", "tol", "max_iter", "random_state", "verbose")
        },
        "alphas": ["array-like", Interval(Integral, 1, None, closed="left")],
        "eps": [Interval(Real, 0, 1, closed="neither")],
        "ridges": ["array-like", StrOptions({"auto"})],
        "scaling": [StrOptions({"auto", "modes"}), None],
        "mode_weights": ["array-like", StrOptions({"auto"}), None],
        "class_mode": ["boolean", StrOptions({"auto"})],
        "cv": ["cv_object"],
        "scoring": [StrOptions(set()), callable, str, None],
        "one_standard_error": ["boolean"],
        "n_jobs": [Integral, None],
    }

    def _new_model(self, **chosen: Any) -> TraceNormModel:
        raise NotImplementedError

    def _labels(self, model: Any, batch: Batch, y: Any) -> Array:
        raise NotImplementedError

    def _known(self, model: TraceNormModel) -> dict[str, Any]:
        """What a fitted model was told beside its weights."""
        raise NotImplementedError

    def _coded_for(self, model: TraceNormModel, batch: Batch) -> Batch:
        """Code the targets as the loss of a model wants them."""
        return batch

    # --- the search --------------------------------------------------------------------------------------------------

    @property
    def _first_loss(self) -> str:
        """The loss that is tried first: "auto" begins with the squared loss, which needs the samples once."""
        return "squared" if self.loss == "auto" else str(self.loss)

    def _select_and_fit(
        self, X: Any, y: Any, sample_weight: Any, groups: Any, params: dict[str, Any], *, classifier: bool
    ) -> Self:
        """Choose by cross-validation, then learn from all samples."""
        metadata = self._for_splitter(groups, params)
        model = self._new_model(loss=self._first_loss)
        found = gathered_or_blocks(model, X, y, sample_weight)
        if isinstance(found, Blocks):
            self._fit_blocks(model, found, metadata, classifier=classifier)
            return self
        batch = model._read(*found, reset=True)
        labels = self._labels(model, batch, found[1])
        splits = self._splits(labels, metadata, classifier=classifier)
        check_fold_weights(splits, None if batch.weight is None else to_numpy(batch.weight))
        if self.scaling == "modes":
            check_dense(batch)
        views = BatchViews(batch, labels, splits, self._judging(model, batch))
        model._say(f"{(form := batch.form(has_moments=self._first_loss == 'squared')).name}: {form.reason}")
        chosen = self._search(model, views, second="logistic" if self.loss == "auto" and views.is_small else None)
        self._finish(model, views, chosen, lambda best: best._fit_batch(self._coded_for(best, batch)))
        return self

    def _judging(self, model: TraceNormModel, batch: Batch) -> Judging:
        return Judging(
            new_model=lambda loss: self._new_model(loss=loss),
            coded=self._coded_for,
            known=self._known(model) | {"_dtype": batch.Y.dtype},
            scoring=self.scoring,
            fit_intercept=self.fit_intercept,
            compares_losses=self.loss == "auto",
        )

    def _search(self, model: TraceNormModel, views: Views, *, second: str | None = None) -> Candidate:
        """Find the best candidate and alpha, one question after the other; set the attributes that describe the search.

        First, in closed form, whether scaling helps ridge regression, and how much of it is best; then which modes to
        penalise; then whether some ridge helps; last, whether another loss finds more classes.
        """
        loss = self._first_loss
        ridge_of = self._begin(model, views)
        scaling, auto = next(iter(ridge_of)), isinstance(self.ridges, str)
        ridges = [0.0] if auto else [float(r) for r in np.atleast_1d(self.ridges)]
        tables = self._walked(model, views, self._candidates(views, ridges, loss, scaling))
        best = _lowest(tables)
        ridge = ridge_of[scaling]
        if auto and ridge is not None:
            more = self._eased(model, views, replace(best.candidate, ridge=self._weighed(ridge, loss, views.n_targets)))
            tables += more
            best = _lowest([best, *more])
        if second is not None:
            more = self._seconds(model, views, best.candidate, second, ridge_of)
            tables += more
            best = self._better(best, _lowest(more))
        self._describe(best, tables)
        return best.candidate

    def _seconds(
        self, model: TraceNormModel, views: Views, best: Candidate, loss: str, ridge_of: dict[str | None, float | None]
    ) -> list[Table]:
        """Walk with the second loss: the best of the first, scaled either way, then with some ridge if that is asked for."""
        auto = isinstance(self.ridges, str)
        other = replace(best, loss=loss, ridge=0.0 if auto else best.ridge)
        tables = self._walked(model, views, [replace(other, scaling=scaling) for scaling in ridge_of])
        better = _lowest(tables).candidate
        ridge = ridge_of[better.scaling]
        if auto and ridge is not None:
            weighed = self._weighed(ridge, loss, views.n_targets)
            tables += self._eased(model, views, replace(better, ridge=weighed))
        return tables

    def _weighed(self, ridge: float, loss: str, n_targets: int) -> float:
        """Carry a ridge over from the squared loss, whose curvature is 2: it should weigh as much against this loss."""
        curvature = float(self._new_model(loss=loss)._loss(n_targets).curvature)
        return 0.5 * ridge * curvature * (_LOGISTIC_SHARE if loss == "logistic" else 1.0)

    def _eased(self, model: TraceNormModel, views: Views, candidate: Candidate) -> list[Table]:
        """Walk with a ridge, and with a tenth of it as long as that helps, twice at most.

        For the squared loss the best ridge is known. That of another loss is a guess, and where the smallest alpha is best
        it was too much.
        """
        tables = self._walked(model, views, [candidate])
        for _ in range(_EASINGS if candidate.loss != "squared" and candidate.ridge > 0 else 0):
            before = tables[-1]
            if not before.ends_at_its_best:
                break
            candidate = replace(candidate, ridge=0.1 * candidate.ridge)
            tables += self._walked(model, views, [candidate])
            if not tables[-1].is_clearly_below(before):
                break
        return tables

    def _better(self, one: Table, other: Table) -> Table:
        """Choose between two losses, whose values say nothing of each other: by hits, or by the user's score."""
        if self.scoring is not None:
            return _lowest([other, one])
        return other if other.accuracy > one.accuracy else one

    def _begin(self, model: TraceNormModel, views: Views) -> dict[str | None, float | None]:
        """Find out with ridge regression alone whether to scale: ways to scale, the best first, with their best ridges.

        A ridge is None where it is not asked for.
        """
        choices: list[str | None] = [None, "modes"] if self.scaling == "auto" else [self.scaling]
        if len(choices) == 1 and not isinstance(self.ridges, str):
            return {choices[0]: None}
        found = {}
        for scaling in choices:
            view = views.of("squared", scaled=scaling is not None)
            outcome = None if view is None else best_ridge(view, Candidate())
            if outcome is not None:
                found[scaling] = outcome
        if not found:
            return {choices[0]: None}
        order = sorted(found, key=lambda scaling: found[scaling][1])
        if len(order) > 1:
            model._say(f"scaling: {order[0]}, which is better for ridge regression")
        return {scaling: found[scaling][0] for scaling in order}

    def _candidates(self, views: Views, ridges: list[float], loss: str, scaling: str | None) -> list[Candidate]:
        """List what to try; "auto" mode weights are equal ones and each mode alone."""
        modes = [False, True] if self.class_mode == "auto" else [bool(self.class_mode)]
        modes = [mode and views.n_targets > 1 for mode in modes]
        return [
            Candidate(weights, ridge, class_mode, loss, scaling)
            for class_mode in dict.fromkeys(modes)
            for weights, ridge in product(self._weight_candidates(len(views.shape) + class_mode), ridges)
        ]

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

    def _walked(self, model: TraceNormModel, views: Views, candidates: list[Candidate]) -> list[Table]:
        ways = []
        for candidate in candidates:
            view = views.of(candidate.loss, scaled=candidate.scaling is not None)
            assert view is not None
            penalty = self._sized(model, candidate)._penalty(views.shape, views.n_targets)
            second = candidate.loss != self._first_loss
            alphas = alpha_grid(view.whole(candidate), penalty, self._fewer if second else self.alphas, self.eps)
            tol = max(self.tol, _PATH_TOL if candidate.loss == "squared" else _DATA_PATH_TOL)
            most = self.max_iter if candidate.loss == "squared" else min(self.max_iter, _DATA_PATH_ITERATIONS)
            ways.append(Way(candidate, view, penalty, alphas, tol, most))
        return walk(ways, n_jobs=self.n_jobs, stop=self._own_grid, say=model._say)

    @property
    def _fewer(self) -> Any:
        """The alphas of a second loss, which needs the samples at every step: a fifth of them tells as much."""
        return max(min(self.alphas, _LEAST_ALPHAS), self.alphas // 5) if self._own_grid else self.alphas

    @property
    def _own_grid(self) -> bool:
        """Whether the alphas are ours to choose."""
        return isinstance(self.alphas, Integral)

    @staticmethod
    def _sized(model: TraceNormModel, candidate: Candidate) -> TraceNormModel:
        """Make a model of the candidate's mode weights and class mode."""
        return type(model)(penalty=model.penalty, mode_weights=candidate.mode_weights, class_mode=candidate.class_mode)

    def _describe(self, best: Table, tables: list[Table]) -> None:
        """Keep the lowest mean error, or with the one-standard-error rule the largest alpha that is as good."""
        at = best.best
        if self.one_standard_error:
            at = int(np.argmax(best.means <= best.means[at] + best.spread[at]))
        self.alphas_, self.alpha_ = best.alphas, float(best.alphas[at])
        for name, value in best.candidate.as_dict().items():
            setattr(self, f"{name}_", value)
        self.best_index_ = tables.index(best)
        sign = 1.0 if self.scoring is None else -1.0
        self.mse_path_ = sign * best.errors
        self.best_score_, self.best_score_std_ = float(-best.means[at]), float(best.spread[at])
        self.cv_results_ = {
            "candidates": [table.candidate.as_dict() for table in tables],
            "alphas": [table.alphas for table in tables],
            "mean_error": [sign * table.means for table in tables],
            "standard_error": [table.spread for table in tables],
        }

    def _fit_blocks(self, model: TraceNormModel, blocks: Blocks, metadata: dict[str, Any], *, classifier: bool) -> None:
        """Do the same with samples that come in blocks; with the squared loss in one pass."""
        if self.scoring is not None or not blocks.repeatable:
            got = "an iterator" if self.scoring is None else f"scoring={self.scoring!r}"
            raise ValueError(
                f"Expected scoring=None and samples that can be read more than once where they are read in blocks, got {got}: "
                "use the loss to select, and pass arrays, files or a list of batches."
            )
        y, weight = all_targets(blocks)
        splits = self._splits(y, metadata, classifier=classifier)
        check_fold_weights(splits, weight)
        found = FoldedBlocks.of(model, blocks, fold_of(splits, len(y)), y, weight)
        tell(found.reader.model, model)
        if self.scaling == "modes":
            check_block_scaling(found.form)
        views = BlockViews(model, found)
        self._finish(model, views, self._search(model, views), lambda best: fit_blocks(best, blocks))

    # --- the model that was found ------------------------------------------------------------------------------------

    def _finish(
        self,
        model: TraceNormModel,
        views: Views,
        chosen: Candidate,
        fit: Callable[[TraceNormModel], None],
    ) -> None:
        best = self._new_model(alpha=self.alpha_, **chosen.as_dict())
        for name in _READ:
            if hasattr(model, name):
                setattr(best, name, getattr(model, name))
        total = views.total if chosen.loss == "squared" else None
        if total is not None:
            best._fit_moments(total, views.shape, warm=False)
        else:
            fit(best)
        self.best_estimator_ = best
        for name in (*_READ[:3], *_SHOWN):
            self.__dict__.pop(name, None)  # what the last fit had and this one has not, such as names of columns
            if hasattr(best, name):
                setattr(self, name, getattr(best, name))
        self.alphas_, self.mse_path_ = (_beside(best.coef_, a) for a in (self.alphas_, self.mse_path_))

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
        return self._passed_on("predict", X)

    def _passed_on(self, method: str, X: Any) -> Array:
        """Ask the model that was found; what is wrong with the place of X is told in our own name."""
        check_is_fitted(self)
        if is_foreign(X) or is_foreign(self.coef_):
            check_place(self, X, method)
        found: Array = getattr(self.best_estimator_, method)(X)
        return found

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Score the model that was found, as it does itself."""
        check_is_fitted(self)
        return float(self.best_estimator_.score(X, y, sample_weight))

    def _splits(self, y: Array, metadata: dict[str, Any], *, classifier: bool) -> Splits:
        splitter = check_cv(self.cv, y, classifier=classifier)
        return list(splitter.split(np.zeros(len(y)), y, **metadata))

    # --- what is passed on -------------------------------------------------------------------------------------------

    def _for_splitter(self, groups: Any, params: dict[str, Any]) -> dict[str, Any]:
        """Gather what the splitter is given: groups, and with metadata routing what it asks for under other names."""
        _raise_for_params(params, self, "fit")
        found = dict(process_routing(self, "fit", **params).splitter.split) if params else {}
        if groups is not None:
            found["groups"] = groups
        return {name: to_numpy(value) if is_foreign(value) else value for name, value in found.items()}

    def get_metadata_routing(self) -> MetadataRouter:
        """Tell scikit-learn who takes what: ``fit`` the weights of samples if asked to, the splitter its groups.

        A splitter such as ``GroupKFold`` gets ``groups`` without further request, as in scikit-learn's own estimators with
        cross-validation; ``set_fit_request(groups=True)`` is for splitters that do not say what they need.
        """
        router = MetadataRouter(owner=self).add_self_request(self)
        requests = router._self_request.fit.requests
        if requests["groups"] is None:
            requests["groups"] = False  # nobody was asked: the splitter decides
        if hasattr(self.cv, "split"):
            router.add(splitter=self.cv, method_mapping=MethodMapping().add(caller="fit", callee="split"))
        return router

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.sparse = True
        tags.array_api_support = True
        return tags


def _lowest(tables: list[Table]) -> Table:
    return min(tables, key=lambda table: float(table.means[table.best]))


def _beside(coef: Array, values: Array) -> Array:
    """Move to the weights, in their precision, unless it is too narrow: squares have twice the exponent of what they are of."""
    fits = np.max(np.abs(values)) <= float(array_namespace(coef).finfo(coef.dtype).max)
    return move_to(values, coef, coef.dtype if fits else None)
