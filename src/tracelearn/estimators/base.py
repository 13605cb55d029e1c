"""What regressor and classifier share: reading, solving, certifying."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import (
    Array,
    array_namespace,
    as_dtype,
    is_sparse,
    move_to,
    same_place,
    to_numbers,
)
from tracelearn.arrays.linalg import mode_scales
from tracelearn.confounds import Regression
from tracelearn.errors import warn
from tracelearn.estimators.weights import WeightsInModes
from tracelearn.losses import LOSSES, Loss
from tracelearn.moments import Moments
from tracelearn.penalties import as_penalty
from tracelearn.problems.data_fit import DataFit, summed
from tracelearn.problems.forms import choose_form
from tracelearn.problems.problem import Problems, Solution, share_of_alpha_max
from tracelearn.problems.squares import Squares
from tracelearn.samples.checks import (
    check_finite,
    check_place,
    check_total_weight,
    learning,
    read_confounds,
    read_samples,
    sample_shape,
    warn_of_grid,
)
from tracelearn.samples.samples import Block, Raw, Samples, as_raw, is_dask, naming, unnamed
from tracelearn.samples.scikit_learn import Interval, StrOptions
from tracelearn.solvers import SOLVERS

logger = logging.getLogger("tracelearn")

# Samples on disk with at most this many entries are summarised block by block; larger ones are read if they fit.
_MANY_ENTRIES = 8192


# Of alpha_max, for alpha="auto": of 0.3, 0.1, 0.03 and 0.01 the best on average over nine data sets.
_AUTO_SHARE = 0.03


class ZeroWeightsWarning(UserWarning):
    """A model has learned nothing: all of its weights are zero."""


@contextmanager
def shown() -> Iterator[None]:
    """Let what is logged be seen while ``verbose`` reports something, and leave logging as it was."""
    level, handler = logger.level, None if logger.hasHandlers() else logging.StreamHandler()
    if handler is not None:
        logger.addHandler(handler)
    logger.setLevel(min(level or logging.INFO, logging.INFO))
    try:
        yield
    finally:
        logger.setLevel(level)
        if handler is not None:
            logger.removeHandler(handler)


@dataclass(frozen=True)
class Survey:
    """What is known of samples in blocks before the first block is read."""

    n_targets: int
    weight: float
    attributes: dict[str, Any] = field(default_factory=dict)  # that the model learns from it
    parameters: dict[str, Any] = field(default_factory=dict)  # with which blocks are read
    options: dict[str, Any] = field(default_factory=dict)  # of ``_block``


class TensorInput(BaseEstimator):
    """Tells scikit-learn which samples an estimator takes: tensors of any array library, and sparse ones without scaling."""

    scaling: Any

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.sparse = self.scaling is None  # the zeros of a sparse matrix would say nothing of scale
        tags.array_api_support = True
        return tags


class TraceNormModel(WeightsInModes, TensorInput):
    """What regressor and classifier share: reading, solving, certifying."""

    _parameter_constraints: dict[str, Any] = {  # noqa: RUF012 - scikit-learn's convention
        "alpha": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})],
        "ridge": [Interval(Real, 0, None, closed="left")],
        "loss": "no_validation",  # names and objects are looked up, and refused in our own words
        "penalty": "no_validation",
        "solver": "no_validation",
        "scaling": [StrOptions({"modes"}), None],
        "mode_weights": ["array-like", None],
        "target_mode": ["boolean"],
        "fit_intercept": ["boolean"],
        "tensor_shape": ["array-like", None],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "warm_start": ["boolean"],
        "keep_moments": ["boolean"],
        "forgetting": [Interval(Real, 0, 1, closed="right")],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        alpha: Any = "auto",
        *,
        ridge: float = 0.0,
        loss: Any = "squared_error",
        penalty: Any = "overlapped",
        mode_weights: Any = None,
        target_mode: bool = False,
        scaling: Any = None,
        fit_intercept: bool = True,
        tensor_shape: Any = None,
        solver: Any = "auto",
        tol: float = 1e-6,
        max_iter: int = 1000,
        warm_start: bool = False,
        keep_moments: bool = False,
        forgetting: float = 1.0,
        verbose: int = 0,
    ) -> None:
        self.alpha = alpha
        self.ridge = ridge
        self.loss = loss
        self.penalty = penalty
        self.mode_weights = mode_weights
        self.target_mode = target_mode
        self.scaling = scaling
        self.fit_intercept = fit_intercept
        self.tensor_shape = tensor_shape
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.keep_moments = keep_moments
        self.forgetting = forgetting
        self.verbose = verbose

    _dtype: Any  # of the samples, and so of the weights
    _flat = False  # whether samples of more than one mode came flat
    _single = False  # whether there is one target and no axis of targets, in y, in weights and in intercepts
    _solution: Solution
    _solved: Any
    intercept_: Any
    _learns_classes = False
    _goes_on = False  # whether somebody else keeps what was learned, as a tree of models does

    # What the two say for themselves.

    def _block(self, X: Any, y: Any, sample_weight: Any, *, reset: bool, **known: Any) -> Any:
        raise NotImplementedError

    def _survey(self, raw: Raw, **known: Any) -> Survey:
        raise NotImplementedError

    # --- samples -----------------------------------------------------------------------------------------------------

    def _loss(self, n_targets: int = 1) -> Loss:
        """Make the loss of its name, or take an object that is one, for so many columns; refuse one for other targets."""
        loss = LOSSES[self.loss]() if isinstance(self.loss, str) and self.loss in LOSSES else self.loss
        wanted = "for_classes" if self._learns_classes else "for_numbers"
        if isinstance(loss, str) or not getattr(loss, wanted, False):
            names = sorted(name for name, known in LOSSES.items() if getattr(known, wanted))
            kind = "classes" if self._learns_classes else "numbers"
            raise ValueError(
                f"Expected a loss for {kind}, one of {', '.join(map(repr, names))} or an object that is one, got {self.loss!r}: "
                "choose one of these, or derive a class from tracelearn.losses.Loss."
            )
        other = loss.for_one if n_targets == 1 else loss.for_several
        found: Loss = loss if other is None else LOSSES[other]()
        return found

    def _read(self, raw: Raw, *, reset: bool = True, **known: Any) -> Samples:
        """Check samples: those in memory at once, others whenever a block of them is read."""
        if reset:
            self.__dict__.pop("modes_", None)
            self.__dict__.update({} if raw.modes is None else {"modes_": raw.modes})
        if raw.in_memory:
            ((_, X, y, weight),) = raw.batches
            if not reset:
                check_place(self, X, "partial_fit")
            elif self.tensor_shape is None and hasattr(X, "columns"):  # a data frame
                warn_of_grid(X.columns)
            block, shape = self._block(X, y, weight, reset=reset, **known)
            block = block if raw.confounds is None else _with_confounds(block, raw.confounds)
            xp, own = array_namespace(block.X), block.X.dtype
            # What is learned of whole numbers and of 16 bits has the widest dtype: sums would not survive fewer bits.
            self._dtype = own if own in (xp.float32, xp.float64) else block.Y.dtype
            if reset:
                self.sample_shape_, self._flat = shape, len(shape) > 1 and len(np.shape(X)) == 2
            return Samples.of(block, shape)
        reader, survey = self._reader(raw, reset=reset, **known)
        options, confounds = {**known, **survey.options, "part": True}, raw.confounds

        def checked(batch: tuple[int, Any, Any, Any]) -> Block:
            first, *parts = batch
            with naming(first):
                block, _ = reader._block(*parts, reset=False, **options)
            found: Block = replace(block, first=first)
            return found if confounds is None else _with_confounds(found, confounds)

        blocks = raw.execution.view(checked, raw.batches)
        shape = reader.sample_shape_
        found = Samples(blocks, shape, survey.n_targets, survey.weight, raw.n_samples, raw.execution)
        return found if confounds is None else replace(found, n_confounds=confounds.shape[1])

    def _reader(self, raw: Raw, *, reset: bool, **known: Any) -> tuple[Any, Survey]:
        """Find out what must be known before the first block; return a light model that knows it, and the rest."""
        if not reset:
            check_place(self, None, "partial_fit")
            return self._light(), Survey(self.moments_.n_targets, math.nan)
        found = self._survey(raw, **known)
        check_total_weight(found.weight)
        dims, dtype = raw.sample_shape, raw.dtype
        if dims is None:
            first = raw.first_samples()
            dims, dtype = np.shape(first)[1:], getattr(first, "dtype", None)
        shape = sample_shape(np.broadcast_to(0.0, (1, *dims)), self.tensor_shape)
        self._flat = len(shape) > 1 and len(dims) == 1
        self.sample_shape_, self.n_features_in_ = shape, math.prod(shape)
        self._dtype = np.dtype(np.float32 if dtype == np.float32 else np.float64)
        self.__dict__.update(found.attributes)
        reader = self._light()
        reader.__dict__.update(found.parameters)
        return reader, found

    def _light(self) -> Any:
        """Copy the model without what only further learning needs: workers are sent it."""
        light = copy.copy(self)
        for name in ("moments_", "_solution", "patterns_"):
            light.__dict__.pop(name, None)
        return light

    # --- learning ----------------------------------------------------------------------------------------------------

    @learning
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, confounds: Any = None) -> Self:
        """Learn from all samples at once.

        Parameters
        ----------
        X : array of shape (n_samples, I1, ..., IN), or (n_samples, n_features) with ``tensor_shape``
            Of NumPy, or of any library of the array API standard, in which and on whose device all is then computed. A
            DataArray of xarray, a DataFrame with several levels of columns and epochs of MNE bring names: ``modes_``.
        y : array of shape (n_samples,), or of a regressor (n_samples, K)
            Numbers are of X's library, or of NumPy and then moved to X. Labels of NumPy may be strings, and so are
            ``classes_`` and predictions; labels of another library are of X's. None takes the names of the events of MNE's
            epochs.
        sample_weight : array of shape (n_samples,), default=None
        confounds : array of shape (n_samples,) or (n_samples, n_confounds), default=None
            Numbers that are regressed out of the samples, such as movement or age. Predictions then need them too: the
            regression that was learned here is applied to new samples.
        """
        loss = self._loss()
        raw = as_raw(X, y, sample_weight, confounds)
        self.__dict__.pop("moments_", None)
        if not raw.repeatable:
            return self._fit_once(raw, loss)
        samples = self._read(raw if raw.in_memory else self._gathered(raw, loss))
        self._learn_from(samples, self._loss(samples.n_targets))
        return self

    def _learn_from(self, samples: Samples, loss: Loss, known: DataFit | None = None) -> None:
        """Solve the problem of checked samples, in the form that suits them; a search may know their data fit."""
        form = choose_form(samples, loss)
        self._report(form.reason)
        if self.scaling and is_sparse(samples.like):
            raise ValueError(
                "Expected dense samples with scaling='modes', got a sparse matrix, whose zeros would say nothing of scale: use "
                "scaling=None, and scale the columns before."
            )
        if form.uses_moments:
            self._fit_moments(samples.moments(), self.warm_start, keep=self.keep_moments)
            return
        if self.keep_moments and not form.reads_samples_again and samples.n_features <= _MANY_ENTRIES:
            # To go on learning; few samples are solved for in their span all the same.
            self.moments_ = samples.moments()
        samples = form.prepared(samples)
        regression = samples.regression(centre=self.fit_intercept) if samples.n_confounds else None
        samples = samples.residual(regression)
        scales = samples.mode_scales() if self.scaling else None
        if known is None:
            options = {"joint": self.target_mode, "fit_intercept": self.fit_intercept}
            known = form.data_fit(samples.rescaled(scales), loss, ridge=self.ridge, **options)
        W = self._solve(known, samples.n_targets, self.warm_start, scales)
        if regression is not None:
            self._weigh_confounds(regression, W)
        self.patterns_ = self._shaped(samples.covariance_times(W), self.sample_shape_, self._dtype)

    def _gathered(self, raw: Raw, loss: Loss) -> Raw:
        """Read samples on disk into memory where every iteration would read them again."""
        n, p = raw.n_samples, math.prod(raw.sample_shape or ())
        streams = loss.has_moments and (n is None or (2 * n >= p and p <= _MANY_ENTRIES))
        return raw if streams else raw.gathered()

    def _fit_once(self, raw: Raw, loss: Loss) -> Self:
        """Learn from samples that come only once: their moments hold all that the squared loss needs."""
        if not loss.has_moments:
            raise ValueError(
                f"Expected samples that can be read more than once for {loss!r}, got an iterator: pass a list, an object whose "
                "__iter__ begins anew, or a file."
            )
        found = self._summarised(raw)
        self._know(found, "classes_")
        self._check_learned()
        self._fit_moments(found.moments_, self.warm_start, keep=self.keep_moments)
        return self

    def _summarised(self, raw: Raw) -> Any:
        """Summarise blocks as they come: a model of the same parameters that knows its moments and no weights."""
        found: Any = type(self)(**{**self.get_params(deep=False), "forgetting": 1.0})
        for first, X, y, weight in raw.batches:  # shape and classes are found on the way
            with naming(first):
                found._learn(X, y, weight, grow=True, part=True)
        check_total_weight(found.moments_.weight)
        return found

    def _know(self, other: Any, *more: str) -> None:
        """Know of samples what another model does."""
        names = ("sample_shape_", "n_features_in_", "_dtype", "_flat", "_single", "modes_", *more)
        self.__dict__.update({name: vars(other)[name] for name in names if name in vars(other)})

    def _check_learned(self) -> None:
        """Refuse what can be judged only after the last block."""

    def _fit_moments(self, moments: Moments, warm: bool, *, keep: bool = True) -> None:
        """Solve the problem of moments, with confounds where a sample has fewer features; keep them to go on learning."""
        xp, shape, given = array_namespace(moments.gram), self.sample_shape_, moments
        p, (n_features, K), regression = math.prod(shape), given.cross.shape, None
        if n_features > p:  # the last ones are confounds
            regression = Regression.of_joint(given if self.fit_intercept else given.uncentred(), p)
            moments = regression.residual_moments(given)
        scales = mode_scales(xp.linalg.diagonal(moments.gram) / moments.weight, shape) if self.scaling else None
        used = moments if scales is None else moments.rescaled(scales)
        used = used if self.fit_intercept else used.uncentred()
        fit = Squares.of(used, ridge=self.ridge, joint=self.target_mode)
        W = self._solve(fit, K, warm, scales)
        if regression is not None:
            self._weigh_confounds(regression, W)
        if keep:
            self.moments_ = given
        self.patterns_ = self._shaped(W @ moments.gram / moments.weight, shape, self._dtype)

    def _weigh_confounds(self, regression: Regression, W: Array) -> None:
        """Set the weights of confounds, so that a score is linear in a sample and its confounds."""
        weights = regression.weights(W)
        shift = weights @ regression.centre
        self.intercept_ = self.intercept_ - (float(shift[0]) if self._single else shift)
        self.confound_coef_ = self._shaped(weights, weights.shape[1:])

    def _shaped(self, rows: Array, shape: tuple[int, ...], dtype: Any = None) -> Array:
        """Give rows (K, p) the shape of tensors, with an axis of targets unless y has none; and a dtype that can hold them."""
        xp = array_namespace(rows)
        if dtype not in (None, rows.dtype) and not float(xp.max(xp.abs(rows))) > float(xp.finfo(dtype).max):
            rows = xp.astype(rows, dtype)
        return xp.reshape(rows, shape if self._single else (-1, *shape))

    def _stated(self, fit: DataFit, n_targets: int) -> tuple[Problems, Any]:
        """Write down the batch of problems of a data fit, and find the solver: by name, the one that suits, or a function.

        With ``target_mode`` the targets are the first mode of one weight tensor.
        """
        shape = (n_targets, *self.sample_shape_) if self.target_mode and n_targets > 1 else self.sample_shape_
        penalty, scale = as_penalty(self.penalty, shape, self.mode_weights), fit.at_zero.value
        penalised = isinstance(self.alpha, str) or self.alpha > 0
        if isinstance(self.alpha, str):
            alpha = share_of_alpha_max(fit, penalty, shape, _AUTO_SHARE)
        else:
            alpha = array_namespace(scale).full_like(scale, float(self.alpha))
        solver = fit.solvers.best if isinstance(self.solver, str) and self.solver == "auto" else self.solver
        solver = SOLVERS.get(solver) if isinstance(solver, str) else solver
        if not callable(solver):
            raise ValueError(
                f"Expected a solver among 'auto', {', '.join(map(repr, SOLVERS))}, or a function like these, got "
                f"{self.solver!r}: choose one."
            )
        return Problems(fit, penalty, alpha, shape, scale, penalised), solver

    def _solve(self, fit: DataFit, n_targets: int, warm: bool, scales: Array | None = None) -> Array:
        """Solve, and set what was learned; the certificate is that of the weights as they are handed out.

        Where samples were divided by scales, so are the weights, which brings them back to the samples' units.
        """
        problems, solver = self._stated(fit, n_targets)
        penalty, alpha = problems.penalty, problems.alpha
        self.alpha_ = float(alpha[0]) if alpha.shape[0] == 1 else np.array(to_numbers(alpha))
        problem = (penalty, self._loss(n_targets), n_targets)
        goes_on = warm and getattr(self, "_solved", ())[:3] == problem and same_place(self._solution.W, alpha)
        start = self._solution if goes_on else None
        record: list[tuple[int, float]] = []

        def watch(so_far: Solution) -> None:
            gap = float(array_namespace(so_far.gap).max(so_far.gap))
            record.append((so_far.n_iter, gap))
            if self.verbose > 1:
                self._report(f"iteration {so_far.n_iter}, relative duality gap {gap:.1e}")

        if self.solver == "auto" and fit.solvers.best == "subspaces":
            few = "subspaces: two passes for the best weights in subspaces of the modes, which then grow"
            many = "apg: some term of the penalty is no trace norm, so every gradient is a pass"
            self._report(few if penalty.is_invariant else many)
        found = solver(problems, tol=self.tol, max_iter=self.max_iter, start=start, on_iteration=watch)
        self._solution, self._solved = found, problem
        for name in ("_class_map", "confound_coef_"):  # they belonged to other weights
            self.__dict__.pop(name, None)
        xp = array_namespace(found.W)
        W = xp.reshape(found.W, (-1, math.prod(self.sample_shape_)))
        coef = W if scales is None else W / scales
        if coef.dtype == self._dtype:
            kept, gap = coef, found.gap
            intercept = problems.fit.intercept(W) if self.fit_intercept else xp.zeros_like(W[:, 0])
        else:
            found, coef, kept, intercept, gap = self._rounded(problems, found, coef, scales)
        self.n_iter_, self.objective_ = found.n_iter, float(xp.sum(found.objective))
        self.dual_gap_ = float(xp.max(gap))
        self.intercept_ = float(intercept[0]) if self._single else intercept
        self.coef_ = self._shaped(kept, (W.shape[1],) if self._flat else self.sample_shape_)
        counts, gaps = zip(*record, (self.n_iter_, self.dual_gap_), strict=True)
        self._convergence = np.array(counts, dtype=np.float64), np.array(gaps)
        self._report(f"relative duality gap {self.dual_gap_:.1e} after {self.n_iter_} iterations")
        if self.dual_gap_ > self.tol or not bool(xp.any(kept != 0)):
            self._warn()
        return coef

    def _rounded(
        self, problems: Problems, found: Solution, coef: Array, scales: Array | None
    ) -> tuple[Solution, Array, Array, Array, Array]:
        """Bring weights and intercepts to the precision of the samples, where the gap has room for what that costs.

        Returns the solution of these weights, the weights as they are computed with and as they are kept, the intercepts, and
        the gaps (B,).
        """
        xp, limit = array_namespace(coef), max(self.tol, float(array_namespace(coef).max(found.gap)))
        kept = self._shaped(coef, (coef.shape[1],), self._dtype)
        exact = as_dtype(xp.reshape(kept, coef.shape), coef.dtype)
        rounded = problems.tensors(exact if scales is None else exact * scales)
        again = problems.certified(rounded, found.split, found.n_iter, found.rho)
        if bool(xp.all(again.gap <= limit)):
            found, coef = again, exact
        else:  # too coarse: the weights stay double
            kept = coef
        if not self.fit_intercept:
            return found, coef, kept, as_dtype(xp.zeros_like(coef[:, 0]), self._dtype), found.gap
        intercept = problems.fit.intercept(xp.reshape(found.W, coef.shape))
        short = xp.reshape(self._shaped(intercept, (), self._dtype), intercept.shape)
        # The loss is flat at the best intercept: another costs at most half the curvature times the square of the distance.
        curvature, room = self._loss(intercept.shape[0]).curvature, xp.clip(limit - found.gap, max=0.1 * self.tol)
        square = summed((as_dtype(short, intercept.dtype) - intercept) ** 2, room.shape[0])
        cost = 0.5 * (curvature or 0.0) * square / xp.where(problems.scale > 0, problems.scale, xp.ones_like(room))
        if curvature is None or not bool(xp.all(cost <= room)):
            return found, coef, kept, intercept, found.gap
        return found, coef, kept, short, found.gap + cost

    def _warn(self) -> None:
        """Warn of an answer that is not proven, or of weights that are all zero."""
        alpha = float(np.max(self.alpha_))
        if self.dual_gap_ > self.tol:
            advice = "increase max_iter, scale the features, or accept a larger tol."
            if alpha == 0.0:
                advice = (
                    "without a penalty nothing is proven along combinations of features that hardly vary, however good the "
                    "weights are, so add a small ridge, or a penalty."
                )
            warn(
                f"Expected a relative duality gap of {self.tol:g}, got {self.dual_gap_:.1e} after {self.n_iter_} iterations of "
                f"{type(self).__name__} with alpha={alpha:g}: {advice}",
                ConvergenceWarning,
            )
        else:
            why = (
                f"with alpha={alpha:g}: it is too large for samples in these units, so decrease it, scale the samples, or let "
                f"{type(self).__name__}CV choose it."
            )
            if alpha == 0.0:
                why = "without a penalty: nothing in the samples varies with the targets, so check both."
            warn(f"Expected some weights that are not zero, got none {why}", ZeroWeightsWarning)

    def _report(self, message: str, **extra: Any) -> None:
        if self.verbose:
            with shown():
                logger.info("%s: %s", type(self).__name__, message, extra=extra)

    # --- the model ---------------------------------------------------------------------------------------------------

    def _apply(self, method: str, X: Any, confounds: Any = None) -> Any:
        """Call the method of this name that takes arrays: at once, block by block, or for a Dask array when it is computed."""
        check_is_fitted(self)
        self._check_confounds(confounds)
        function, known = f"_{method}", getattr(self, "modes_", None)
        X, _, _ = unnamed(X, 0, known)
        check_place(self, X, method)
        if is_dask(X):
            from tracelearn.samples.execution import lazily  # noqa: PLC0415 - Dask is imported where it is used

            call = getattr(self._light(), function)
            C = None if confounds is None else read_confounds(confounds, int(X.shape[0]))
            like = call(np.zeros((1, *self.sample_shape_)), None if C is None else 0.0 * C[:1])
            return lazily(call, X, like[:0], C)
        raw = as_raw(X, confounds=confounds, known=known)
        if raw.in_memory:
            return getattr(self, function)(X, raw.confounds)
        call, C = getattr(self, function), raw.confounds
        return np.concatenate(
            [call(X, None if C is None else C[first : first + len(X)]) for first, X, *_ in raw.batches]
        )

    def _check_confounds(self, confounds: Any) -> None:
        """Refuse a model of confounds without them, and confounds that it does not know."""
        expected = 0
        if hasattr(self, "confound_coef_"):
            expected = int(self.confound_coef_.shape[-1])
        elif hasattr(self, "moments_"):  # learned, and not solved yet
            expected = self.moments_.n_features - math.prod(self.sample_shape_)
        got = 0 if confounds is None else 1 if len(np.shape(confounds)) == 1 else int(np.shape(confounds)[-1])
        if got != expected:
            raise ValueError(
                f"Expected {expected or 'no'} confounds of each sample, as in fit, got {got or 'none'}: pass "
                f"{'confounds=' if expected else 'samples alone'}."
            )

    def _scores(self, X: Any, confounds: Array | None = None) -> Array:
        rows, _ = read_samples(self, X, reset=False, any_library=True)
        xp = array_namespace(rows)
        coef = xp.reshape(self.coef_, (-1, rows.shape[1]))
        dtype = xp.result_type(rows.dtype, coef.dtype) if xp.isdtype(rows.dtype, "real floating") else coef.dtype
        # Confounds may be far from zero, as times of day are: their part and the intercept cancel, which single precision loses.
        within = dtype if confounds is None else xp.result_type(dtype, self.confound_coef_.dtype)
        shift = self.intercept_ if isinstance(self.intercept_, float) else as_dtype(self.intercept_, within)
        with np.errstate(over="ignore", invalid="ignore"):  # judged below
            scores = as_dtype(as_dtype(rows, dtype) @ as_dtype(coef, dtype).T, within) + shift
            if confounds is not None:
                weights = xp.reshape(self.confound_coef_, (coef.shape[0], -1))
                scores = as_dtype(scores + move_to(confounds, rows, within) @ as_dtype(weights, within).T, dtype)
        check_finite(scores, "scores", overflows=True)
        return scores

    @property
    def convergence_(self) -> Array:
        """Iteration and relative duality gap, the largest over targets, at every check of the last solve."""
        check_is_fitted(self)
        return gap_curve(*self._convergence)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the last solution out of pickles unless it may be started from."""
        state = dict(super().__getstate__())
        if not (self.warm_start or self._goes_on or "moments_" in state):
            for name in ("_solution", "_solved"):
                state.pop(name, None)
        return state


def _with_confounds(block: Block, confounds: Array) -> Block:
    """Add the confounds of a block, given those of all samples."""
    if is_sparse(block.X):
        raise ValueError(
            "Expected dense samples with confounds, got a sparse matrix: what is left of it is not sparse."
        )
    rows = confounds[block.first : block.first + block.X.shape[0], :]
    return replace(block, confounds=move_to(rows, block.X, block.Y.dtype))


def gap_curve(counts: Array, gaps: Array) -> Array:
    """Return iterations and the largest gaps over targets (n, 2), given those of all checks and of what the solver returned.

    Newton solves separable targets one after the other: a count that falls back is the next target's.
    """
    n_iter, counts = counts[-1], counts[:-1]
    iterations = np.unique(counts[counts < n_iter])
    largest = np.zeros(len(iterations))
    for run in np.split(np.arange(len(counts)), np.flatnonzero(np.diff(counts) <= 0) + 1):
        if len(run):  # between two looks, and after the last, the gap is what was proven before
            last = np.searchsorted(counts[run], iterations, side="right") - 1
            largest = np.maximum(largest, gaps[run][np.maximum(last, 0)])
    return np.stack([np.append(iterations, n_iter), np.append(largest, gaps[-1])], axis=1)
