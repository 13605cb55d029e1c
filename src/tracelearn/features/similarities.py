"""Similarities: how much a sample is like each of some training samples, so that a linear model learns a smooth function."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from array_api_compat import device
from scipy.linalg import cholesky, solve_triangular
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import Array, array_namespace, as_dtype, move_to, to_numpy, widest
from tracelearn.arrays.linalg import few_threads
from tracelearn.errors import refuse
from tracelearn.features.base import TensorTransformer, fit_copy
from tracelearn.features.draws import sample_numbers, scramble, unit_signals
from tracelearn.features.gaps import has_gaps, resampled_tensors
from tracelearn.features.summaries import Summary
from tracelearn.features.training import TrainingSamples, blocks_of
from tracelearn.samples.checks import check_range
from tracelearn.samples.scikit_learn import Interval, StrOptions

__all__ = ["SOFTENING", "Similarities"]

# Added to squared distances, which rounding leaves slightly off zero, and to the similarity of a landmark to itself.
SOFTENING = 1e-6
_JITTER = 1e-6
_HASHED = 256  # entries of a sample, in equal steps, from which its hash is computed
_ROUNDING = 1e-12  # of the size of entries: a standard deviation that is no larger is none
_COLUMNS = 1 << 15  # whose variances are found together
_MOST_SAMPLES = 20_000  # of a search that tries it


@dataclass(frozen=True, eq=False)
class Landmarks(Summary):
    """Drawn samples, a row of ``mean`` each: hash, then entries. A sum keeps those of the ``n_landmarks`` lowest hashes.

    ``shape`` is that of a sample with its padding: of parts that are padded to several lengths the longer one remains.
    """

    n_landmarks: int = 0
    shape: tuple[int, ...] = ()

    def __add__(self, other: Summary) -> Landmarks:
        shape = tuple(np.maximum(self.shape, other.shape).tolist())  # type: ignore[attr-defined] # the other is one of these
        parts = [part.rows_of_shape(shape) for part in (self, other)]  # type: ignore[attr-defined]
        return replace(self, weight=self.weight + other.weight, mean=_lowest(parts, self.n_landmarks), shape=shape)

    def rows_of_shape(self, shape: tuple[int, ...]) -> Array:
        """Return ``mean`` with samples padded by NaN to a shape."""
        if shape == self.shape:
            return self.mean
        samples = self.mean[:, 1:].reshape(-1, *self.shape)
        widths = [(0, longer - size) for longer, size in zip(shape, self.shape, strict=True)]
        samples = np.pad(samples, [(0, 0), *widths], constant_values=np.nan)
        return np.concatenate([self.mean[:, :1], samples.reshape(len(samples), -1)], axis=1)


def _lowest(tables: Sequence[Array], n_landmarks: int) -> Array:
    """Choose the rows of several tables whose first entries, their hashes, are lowest, sorted by these; equal rows count once."""
    hashes = np.concatenate([table[:, 0] for table in tables])
    lowest_hashes = np.unique(hashes)[:n_landmarks]
    chosen = np.flatnonzero(hashes <= lowest_hashes[-1])
    chosen = chosen[np.argsort(hashes[chosen])]
    rows = np.empty((len(chosen), tables[0].shape[1]))
    every_row = [row for table in tables for row in table]  # views: of large samples no second copy is made
    for place, number in enumerate(chosen):
        rows[place] = every_row[number]
    if len(lowest_hashes) == len(chosen):
        return rows
    # Samples that differ only in size have equal hashes (of two entries most do): a hash with their size sorts them, whatever
    # order they came in.
    sums = np.nansum(rows[:, 1:] * np.cos(np.arange(1.0, rows.shape[1])), axis=1)
    rows = rows[np.lexsort((scramble(scramble(sums.view(np.uint64))), rows[:, 0]))]
    are_equal = (rows[1:] == rows[:-1]) | (np.isnan(rows[1:]) & np.isnan(rows[:-1]))
    is_new = np.append(True, ~np.all(are_equal, axis=1))
    return rows[is_new][:n_landmarks]


class Similarities(TensorTransformer):
    """Compare each sample with some of the training samples, the landmarks.

    A linear model of similarities is a smooth function of the samples that need not be linear: it learns what is between the
    training samples, as kernel ridge regression and support vector machines do. Up to ``n_landmarks`` training samples all of
    them are landmarks, and ridge regression on this view is kernel ridge regression. Of more training samples some are drawn
    (Nyström's method): each sample has a number, computed from its shape, and the lowest ones are drawn. So nothing depends on
    chance, on the order of samples, on batches or on units.

    The similarity of two samples falls from one to zero with their distance d: ``exp(-d)`` or ``exp(-d^2)``, where the total
    variance is one. A transformed sample has one entry for each landmark: similarities, multiplied by a matrix that makes the
    scalar product of two samples their similarity.

    Parameters
    ----------
    transformer : transformer of this package or None, default=None
        What samples are transformed by before they are compared, such as ``SecondOrder()``. None: they are compared as they are.
    kernel : "exponential" or "gaussian", default="exponential"
        Whether the similarity is ``exp(-d)`` or ``exp(-d^2)``.
    width : float, default=1.0
        Distances are divided by it: from a larger one farther samples count as similar.
    scaling : bool, default=True
        Whether every entry is divided by its standard deviation before distances are measured.
    n_landmarks : int, default=500
        How many training samples to compare with, at most, and how many entries a transformed sample has: of fewer training
        samples the last entries are zero.
    tensor_shape : sequence of ints, default=None
        The shape of a sample if X is flat, of shape (n_samples, n_features).

    Attributes
    ----------
    landmarks_ : array of shape (m, I1, ..., IN)
        These training samples. They are part of the model, and of files of it. Those of unequal length are padded with NaN.
    draws_ : array of shape (m,)
        The numbers between 0 and 1 that drew them, increasing; 1 for samples whose entries are all the same.
    mean_, scale_ : arrays of shape (n_entries,)
        What is subtracted from each entry, and what it is divided by; both are those of the landmarks.
    points_ : array of shape (m, n_entries)
        Landmarks as they are compared: transformed, less ``mean_``, divided by ``scale_``.
    whitener_ : array of shape (n_landmarks, m)
        What similarities are multiplied by.
    transformers_ : list of the fitted transformer, or an empty list
    n_samples_seen_ : int, or float with sample weights
    sample_shape_ : tuple of ints
    n_features_in_ : int
        Number of entries of a sample.

    Notes
    -----
    Samples may have gaps and be of unequal length where the transformer inside takes these.

    Examples
    --------
    Two classes, of which one is inside of the other:

    >>> import numpy as np
    >>> from tracelearn import Similarities, TraceNormClassifier
    >>> X = np.random.default_rng(0).normal(size=(400, 2, 2))
    >>> y = (X**2).sum(axis=(1, 2)) > 4
    >>> Z = Similarities(n_landmarks=200).fit(X[:200]).transform(X)
    >>> Z.shape
    (400, 200)
    >>> accuracy = [TraceNormClassifier(alpha=1e-3).fit(S[:200], y[:200]).score(S[200:], y[200:]) for S in (X, Z)]
    >>> accuracy[0] < 0.7, accuracy[1] > 0.85
    (True, True)
    """

    landmarks_: Array
    draws_: Array
    points_: Array
    mean_: Array
    scale_: Array
    whitener_: Array
    transformers_: list[TensorTransformer]

    keeps_entries = False
    is_flexible = True
    learns_in_one_pass = False

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 - scikit-learn's convention
        "transformer": [TensorTransformer, None],
        "kernel": [StrOptions({"exponential", "gaussian"})],
        "width": [Interval(Real, 0, None, closed="neither")],
        "scaling": ["boolean"],
        "n_landmarks": [Interval(Integral, 1, None, closed="left")],
        "tensor_shape": ["array-like", None],
    }

    def __init__(
        self,
        transformer: Any = None,
        *,
        kernel: str = "exponential",
        width: float = 1.0,
        scaling: bool = True,
        n_landmarks: int = 500,
        tensor_shape: Any = None,
    ) -> None:
        self.transformer = transformer
        self.kernel = kernel
        self.width = width
        self.scaling = scaling
        self.n_landmarks = n_landmarks
        self.tensor_shape = tensor_shape

    def why_not(self, shape: tuple[int, ...], n_samples: int, positive: bool = False) -> str:
        """See ``TensorTransformer``: not too many samples, which suit the transformer inside."""
        if n_samples > _MOST_SAMPLES:
            return f"there are more than {_MOST_SAMPLES} samples"
        return "" if self.transformer is None else self.transformer.why_not(shape, n_samples, positive)

    @property
    def takes_gaps(self) -> bool:  # type: ignore[override]
        """Whether the transformer inside takes samples with gaps and of any length: what it makes of them is complete."""
        return getattr(self.transformer, "takes_gaps", False)

    def time_mode(self, shape: tuple[int, ...]) -> int | None:
        """Find the mode that is time for the transformer inside; see ``TensorTransformer``."""
        return None if self.transformer is None else self.transformer.time_mode(shape)

    def learned_shape(self, shape: tuple[int, ...], n_times: int | None = None) -> tuple[int, ...]:
        """Return the shape of samples for the transformer inside; see ``TensorTransformer``."""
        return shape if self.transformer is None else self.transformer.learned_shape(shape, n_times)  # type: ignore[no-any-return]

    @property
    def output_shape_(self) -> tuple[int, ...]:
        """One entry for each landmark."""
        return (int(self.n_landmarks),)

    def numbers_per_sample(self, shape: tuple[int, ...]) -> int:
        """Count the entries of a sample, of what the transformer inside makes of it, and of the similarities."""
        return self._numbers_with(self.transformers_, shape)

    def _numbers_with(self, transformers: Sequence[TensorTransformer], shape: tuple[int, ...]) -> int:
        """Count the numbers of one sample, given the fitted transformer inside."""
        inside = sum(view.numbers_per_sample(shape) for view in transformers)
        return math.prod(shape) + self.n_landmarks + inside

    # --- learning ----------------------------------------------------------------------------------------------------

    def learn(self, samples: TrainingSamples, earlier: Any) -> dict[str, Any]:
        """Fit the transformer inside, then draw landmarks."""
        transformers = []
        if self.transformer is not None:
            (before,) = [None] if earlier is None else earlier.transformers_
            transformers = [fit_copy(self.transformer, samples, before)]
        draw = functools.partial(self.summarise_tensors, shape=samples.shape if self.takes_gaps else None)
        summary = samples.total(draw, functools.partial(self._numbers_with, transformers))
        learned = self.attributes_after(summary, samples.shape, earlier)
        scales = self._comparison(learned["landmarks_"], transformers)
        any_length = {"takes_any_length_": transformers[0].takes_any_length_} if self.takes_gaps else {}
        return {**learned, "transformers_": transformers, **scales, **any_length}

    def summarise_tensors(self, T: Array, weight: Array, shape: tuple[int, ...] | None = None) -> Summary:
        """Draw landmarks from a block of samples; see ``draws.py``. Numbers are those of samples completed to a ``shape``."""
        xp = array_namespace(T)
        T = as_dtype(T, widest(T)["dtype"])
        rows = xp.reshape(T, (T.shape[0], -1))
        complete = rows if shape is None else xp.reshape(self._completed(T, shape), (T.shape[0], -1))
        hashed = complete[:, :: -(-complete.shape[1] // _HASHED)]
        hashed = hashed - hashed[:, :1]
        units, sizes = unit_signals((hashed - xp.mean(hashed, axis=1, keepdims=True))[None, ...])
        largest = float(xp.max(xp.abs(complete)))  # not of the centred signals: levels must be in range, too
        if not np.finfo(np.float64).tiny < largest * largest < np.inf:
            check_range(T, "X")
        is_constant = to_numpy(sizes)[0, :, 0] == 0
        hashes = np.where(is_constant, 1.0, sample_numbers(units, 1)[0])
        # Repeated samples have one hash and count once, so as many different hashes are drawn as there can be landmarks.
        drawn = np.flatnonzero(hashes <= np.unique(hashes)[: self.n_landmarks][-1])
        rows_with_hash = np.empty((len(drawn), 1 + rows.shape[1]))
        rows_with_hash[:, 0] = hashes[drawn]
        rows_with_hash[:, 1:] = to_numpy(xp.take(rows, xp.asarray(drawn, device=device(T)), axis=0))
        landmarks = _lowest([rows_with_hash], self.n_landmarks)
        total_weight = float(array_namespace(weight).sum(weight))
        return Landmarks(total_weight, landmarks, [], n_landmarks=self.n_landmarks, shape=tuple(T.shape[1:]))

    def _completed(self, T: Array, shape: tuple[int, ...]) -> Array:
        """Bring samples to one shape, whatever their padding, and fill gaps; a channel without any value becomes zero."""
        if tuple(T.shape[1:]) == shape and not has_gaps(T):
            return T
        values = to_numpy(T)
        time = self.time_mode(shape)
        if time is not None:
            values = resampled_tensors(values, time, shape[time])
        return move_to(np.nan_to_num(values), T, T.dtype)

    def past_summary(self) -> Summary:
        """Return the landmarks and their hashes."""
        rows = np.concatenate([self.draws_[:, None], self.landmarks_.reshape(len(self.draws_), -1)], axis=1)
        shape = self.landmarks_.shape[1:]
        return Landmarks(float(self.n_samples_seen_), rows, [], n_landmarks=self.n_landmarks, shape=shape)

    def attributes_from(self, summary: Summary, shape: tuple[int, ...]) -> dict[str, Any]:
        """Return the landmarks and their hashes."""
        padded_shape = summary.shape  # type: ignore[attr-defined] # it is of Landmarks
        return {"landmarks_": summary.mean[:, 1:].reshape(-1, *padded_shape), "draws_": summary.mean[:, 0]}

    def _comparison(self, landmarks: Array, transformers: list[TensorTransformer]) -> dict[str, Any]:
        """Return how samples are compared with landmarks, given the fitted transformer inside, if any, as fitted attributes."""
        Z = _entries(landmarks, transformers)
        offsets = Z - Z[0]  # exactly zero for an entry that is always the same
        mean = Z[0] + np.mean(offsets, axis=0)
        blocks = [offsets[:, first : first + _COLUMNS] for first in range(0, Z.shape[1], _COLUMNS)]
        variance = np.concatenate([np.var(block, axis=0) for block in blocks])
        # A spread below the rounding of entries is none; a transformer rounds all of them as it does the largest.
        axis = None if transformers else 0
        largest = np.maximum(np.max(Z, axis=axis), -np.min(Z, axis=axis))
        varies = variance > (_ROUNDING * largest) ** 2
        if self.scaling:
            scale = np.sqrt(np.where(varies, variance, 1.0) * max(1, np.count_nonzero(varies)))
        else:
            scale = np.full_like(variance, math.sqrt(np.sum(variance[varies])) or 1.0)
        points = np.subtract(Z, mean, out=offsets)  # samples may be large: in place of what is no longer needed
        points /= scale
        K = self.kernel_of(points, points)
        eye = np.eye(len(Z))
        with few_threads(K):
            whitener = solve_triangular(cholesky(K + _JITTER * eye, lower=True), eye, lower=True)
        return {
            "mean_": mean,
            "scale_": scale,
            "points_": points,
            "whitener_": np.concatenate([whitener, np.zeros((self.n_landmarks - len(Z), len(Z)))]),
        }

    # --- applying ----------------------------------------------------------------------------------------------------

    def kernel_of(self, Z: Array, points: Array) -> Array:
        """Find the similarity of every row to every point, (n, m)."""
        xp = array_namespace(Z)
        P = move_to(points, Z, Z.dtype)
        squares = _squared_lengths(Z)[:, None] + _squared_lengths(P)[None, :] - 2.0 * (Z @ P.T)
        squares = xp.clip(squares, min=0.0) / self.width**2 + SOFTENING
        return xp.exp(-squares) if self.kernel == "gaussian" else xp.exp(-xp.sqrt(squares))

    def transform_tensors(self, T: Array) -> Array:
        """Compare samples with landmarks."""
        Z = _entries(T, self.transformers_)
        Z = Z - move_to(self.mean_, Z, Z.dtype)
        Z /= move_to(self.scale_, Z, Z.dtype)
        return self.kernel_of(Z, self.points_) @ move_to(self.whitener_.T, Z, Z.dtype)

    # --- reading a weight --------------------------------------------------------------------------------------------

    def landmark_weights(self, W: Array) -> Array:
        """Find what the similarity to each landmark is multiplied by, given weights that were learned on transformed samples.

        Parameters
        ----------
        W : array of shape (..., n_landmarks), such as ``coef_`` of a model
        """
        return self._checked_weights(W) @ self.whitener_

    def entry_weights(self, W: Array) -> Array:
        """Sum up the landmarks, each times its weight: the weights of entries if similarities were linear.

        Parameters
        ----------
        W : array of shape (..., n_landmarks), such as ``coef_`` of a model

        Returns
        -------
        array of shape (..., I1, ..., IN), or of the shape that ``transformer`` makes of samples
        """
        return self._over_entries(self.landmark_weights(W), self.points_ / self.scale_)

    def entry_patterns(self, W: Array) -> Array:
        """Find the covariance, over the landmarks, of every entry with the scores of W, in the shape of ``entry_weights``."""
        W = self._checked_weights(W)
        n = len(self.draws_)
        # The scores of the landmarks; their rows in points_ are centred, so products with these are covariances.
        scores = W[..., :n] @ np.linalg.inv(self.whitener_[:n]).T
        return self._over_entries(scores / n, self.points_ * self.scale_)

    def _checked_weights(self, W: Array) -> Array:
        """Check that weights have one entry for each landmark, and return them as an array of NumPy."""
        check_is_fitted(self)
        W = to_numpy(W)
        n = int(self.n_landmarks)
        refuse(
            W.shape[-1:] != (n,),
            f"Expected weights whose last axis has {n} numbers, one for each entry, got shape {W.shape}: pass coef_ of a "
            "model that was fitted on what transform returns.",
        )
        return W

    def _over_entries(self, weights: Array, rows: Array) -> Array:
        """Sum rows (m, p), each times its weight (..., m), and shape the sums like the entries that are compared."""
        shape = self.transformers_[0].output_shape_ if self.transformers_ else self.sample_shape_
        return (weights @ rows).reshape(*weights.shape[:-1], *shape)


def _squared_lengths(rows: Array) -> Array:
    """Sum the squares of each of some rows (n, p), in blocks: landmarks may take much of the memory."""
    xp = array_namespace(rows)
    return xp.concat([xp.sum(rows[block, :] ** 2, axis=1) for block in blocks_of(*rows.shape)])


def _entries(T: Array, transformers: list[Any]) -> Array:
    """Return the entries that are compared, as rows: those of tensors, or of what the transformer makes of them."""
    for view in transformers:
        T = view.transform_tensors(T)
    return array_namespace(T).reshape(T, (T.shape[0], -1))
