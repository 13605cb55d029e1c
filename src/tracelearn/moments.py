"""Moments: the additive summary of samples from which the squared loss learns everything.

Invariant: ``Moments.of`` of a union is the sum of the ``Moments.of`` of its parts, in any order and any grouping, to
rounding. Batch, online, out of core and cluster are therefore one fold and give one answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from array_api_compat import device, is_numpy_array

from tracelearn.arrays.array_api import (
    Array,
    array_namespace,
    block_bytes,
    is_sparse,
    move_to,
    place,
    to_single,
    widest,
)
from tracelearn.arrays.linalg import positive_part, weighted_gram

__all__ = ["Accumulator", "Cancelled", "Moments"]

# Rows are centred block by block, so the data are never copied whole: on a processor in a buffer that stays in cache,
# elsewhere in blocks large enough to keep the device busy.
_BLOCK_BYTES = 16 << 20
_MOST_PENDING = 64  # corrections of rank one that are collected, then made together
# Sparse rows are summed as such where at most this share of them is not zero, and every feature spreads about its mean by
# at least this share of its mean square.
_LARGEST_DENSITY = 0.1
_LEAST_SPREAD = 1e-4
# On a device that has only single precision no more rows than these are summed at once.
_SINGLE_ROWS = 1 << 13
_ROUNDING = 8.0  # of differences of moments, in units of the last place of all that was added and subtracted
# The largest rounding, as a share of the variance of the remainder, from which one may still learn.
_LARGEST_NOISE = 1e-3
_NO_VARIATION = 1e-9  # a feature whose variance is a smaller share of its mean square counts as constant


@dataclass(frozen=True, eq=False)
class Cancelled:
    """The size of all that was added and subtracted, where moments are a difference: their rounding is proportional to it.

    The sums of squares of the features about their mean (p,) and of the targets (K,), and the absolute values of their sums.
    """

    x_squares: Array
    y_squares: Array
    x_sums: Array
    y_sums: Array

    @classmethod
    def of(cls, moments: Moments) -> Cancelled:
        """Return what moments carry or, if they are no difference, their own size."""
        if moments.cancelled is not None:
            return moments.cancelled
        xp = array_namespace(moments.gram)
        weight = moments.weight
        diagonal = xp.linalg.diagonal(moments.gram)
        return cls(diagonal, moments.target_sq, weight * xp.abs(moments.x_mean), weight * xp.abs(moments.y_mean))

    def __add__(self, other: Cancelled) -> Cancelled:
        return Cancelled(
            self.x_squares + other.x_squares,
            self.y_squares + other.y_squares,
            self.x_sums + other.x_sums,
            self.y_sums + other.y_sums,
        )

    def scaled(self, factor: float) -> Cancelled:
        """Multiply every sample's weight."""
        return Cancelled(factor * self.x_squares, factor * self.y_squares, factor * self.x_sums, factor * self.y_sums)

    def rescaled(self, scales: Array) -> Cancelled:
        """Divide every feature by its scale (p,)."""
        return replace(self, x_squares=self.x_squares / scales**2, x_sums=self.x_sums / scales)

    def first_features(self, count: int) -> Cancelled:
        """Keep the first features."""
        return replace(self, x_squares=self.x_squares[:count], x_sums=self.x_sums[:count])

    def moved_to(self, like: Array) -> Cancelled:
        """Bring the arrays to the library and the device of another."""
        return Cancelled(
            move_to(self.x_squares, like),
            move_to(self.y_squares, like),
            move_to(self.x_sums, like),
            move_to(self.y_sums, like),
        )


@dataclass(frozen=True, eq=False)
class Moments:
    """Hold the weight, the means and the centred products of samples and targets.

    With samples ``x_i`` (flattened, p numbers), targets ``y_i`` (K numbers) and weights ``w_i``::

        weight     = sum_i w_i
        x_mean     = sum_i w_i x_i / weight                       (p,)
        y_mean     = sum_i w_i y_i / weight                       (K,)
        gram       = sum_i w_i (x_i - x_mean)(x_i - x_mean)'      (p, p)
        cross      = sum_i w_i (x_i - x_mean)(y_i - y_mean)'      (p, K)
        target_sq  = sum_i w_i (y_i - y_mean)^2                   (K,)

    Held centred and merged by the formula of Chan, Golub and LeVeque: raw sums minus means lose every digit when the
    mean is large against the spread. Moments are values: ``+`` merges, ``-`` removes samples again, ``scaled`` forgets.
    What was removed may have been much larger than the remainder; ``cancelled`` says how large, for the rounding in certificates.

    Examples
    --------
    Two sites that never show each other their samples:

    >>> import numpy as np
    >>> from tracelearn import Moments
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(20, 3, 2)), rng.normal(size=20)
    >>> both = Moments.of(X[:8], y[:8]) + Moments.of(X[8:], y[8:])
    >>> bool(np.allclose(both.gram, Moments.of(X, y).gram))
    True
    >>> both
    Moments(weight=20.0, n_features=6, n_targets=1)
    """

    weight: float
    x_mean: Array
    y_mean: Array
    gram: Array
    cross: Array
    target_sq: Array
    cancelled: Cancelled | None = None  # None where nothing was ever removed

    @classmethod
    def zero(cls, n_features: int, n_targets: int = 1, *, like: Array | None = None) -> Moments:
        """Make the moments of no sample at all, the neutral element of ``+``."""
        return Accumulator.empty(n_features, n_targets, like).freeze()

    @classmethod
    def of(cls, X: Array, y: Array, sample_weight: Array | None = None) -> Moments:
        """Summarise samples.

        Parameters
        ----------
        X : array of shape (n, I1, ..., IN)
        y : array of shape (n,) or (n, K)
        sample_weight : array of shape (n,), not negative, or None for ones
        """
        y = y[:, None] if y.ndim == 1 else y
        return Accumulator.empty(math.prod(X.shape[1:]), y.shape[1], X).add(X, y, sample_weight).freeze()

    @classmethod
    def total(cls, parts: Sequence[Moments]) -> Moments:
        """Add up moments, at least one: what ``+`` gives, with one pass over each p by p array.

        Examples
        --------
        >>> import numpy as np
        >>> from tracelearn import Moments
        >>> X, y = np.arange(12.0).reshape(4, 3) ** 2, np.arange(4.0)
        >>> moments = Moments.total([Moments.of(X[i : i + 1], y[i : i + 1]) for i in range(4)])
        >>> bool(np.allclose(moments.gram, Moments.of(X, y).gram))
        True
        """
        parts = [part for part in parts if part.weight] or list(parts[:1])
        first = parts[0]
        if len(parts) == 1:
            return first
        if any(part.cancelled is not None for part in parts):
            return sum(parts[1:], start=first)
        xp = array_namespace(first.gram)
        weight = sum(part.weight for part in parts)
        # Chan's formula for several parts at once, about the mean of the first.
        x_steps = xp.stack([part.x_mean for part in parts]) - first.x_mean
        y_steps = xp.stack([part.y_mean for part in parts]) - first.y_mean
        weights = xp.asarray([part.weight for part in parts], dtype=x_steps.dtype, device=device(x_steps))
        x_step = (weights / weight) @ x_steps
        y_step = (weights / weight) @ y_steps
        roots = xp.sqrt(weights)[:, None]
        x_rows = roots * (x_steps - x_step)
        y_rows = roots * (y_steps - y_step)
        gram = x_rows.T @ x_rows
        cross = x_rows.T @ y_rows
        target_sq = xp.sum(y_rows**2, axis=0)
        for part in parts:
            gram += part.gram  # in place where the library can
            cross = cross + part.cross
            target_sq = target_sq + part.target_sq
        return cls(weight, first.x_mean + x_step, first.y_mean + y_step, gram, cross, target_sq)

    @property
    def n_features(self) -> int:
        """The number p of entries of a sample."""
        return int(self.x_mean.shape[0])

    @property
    def n_targets(self) -> int:
        """The number K of targets."""
        return int(self.y_mean.shape[0])

    def updated(self, X: Array, y: Array, sample_weight: Array | None = None) -> Moments:
        """Add samples: ``self + Moments.of(X, y, sample_weight)``, with one p by p array less."""
        y = y[:, None] if y.ndim == 1 else y
        return Accumulator.thaw(self).add(X, y, sample_weight).freeze()

    def __add__(self, other: Moments) -> Moments:
        _check_alike(self, other)
        if other.weight == 0.0:
            return self
        if self.weight == 0.0:
            return other
        return self._merged(other, 1.0)

    def __sub__(self, other: Moments) -> Moments:
        """Remove samples that were added before."""
        _check_alike(self, other)
        if other.weight == 0.0:
            return self
        remaining_weight = self.weight - other.weight
        # Weights are sums in different orders, so an exact zero is not to be expected.
        if abs(remaining_weight) <= 1e-12 * self.weight:
            return Moments.zero(self.n_features, self.n_targets, like=self.x_mean)
        if remaining_weight < 0.0:
            raise ValueError(
                f"Expected moments of samples that are part of these, got weight {other.weight:g} to remove from "
                f"{self.weight:g}: remove only what was added before."
            )
        return self._merged(other, -1.0)

    def _merged(self, other: Moments, sign: float) -> Moments:
        """Add (sign 1) or remove (sign -1) the samples of other moments."""
        # Chan, Golub and LeVeque (1979); with sign = -1 the same formula solved for one of its two parts.
        weight = self.weight + sign * other.weight
        x_step, y_step = other.x_mean - self.x_mean, other.y_mean - self.y_mean
        share = sign * other.weight / weight
        factor = self.weight * share
        is_difference = sign < 0 or self.cancelled is not None or other.cancelled is not None
        return Moments(
            cancelled=self._cancelled_with(other, x_step, y_step, abs(factor)) if is_difference else None,
            weight=weight,
            x_mean=self.x_mean + share * x_step,
            y_mean=self.y_mean + share * y_step,
            gram=self.gram + sign * other.gram + factor * (x_step[:, None] * x_step[None, :]),
            cross=self.cross + sign * other.cross + factor * (x_step[:, None] * y_step[None, :]),
            target_sq=self.target_sq + sign * other.target_sq + factor * y_step**2,
        )

    def _cancelled_with(self, other: Moments, x_step: Array, y_step: Array, factor: float) -> Cancelled:
        """Add up the sizes of two moments and of ``factor`` times the square of the step between their means."""
        xp = array_namespace(self.gram)
        ours = Cancelled.of(self)
        theirs = Cancelled.of(other)
        x_step, y_step = xp.abs(x_step), xp.abs(y_step)
        # The step is a difference of means, so it has their rounding.
        x_sizes = ours.x_sums / self.weight + theirs.x_sums / other.weight
        y_sizes = ours.y_sums / self.weight + theirs.y_sums / other.weight
        step = Cancelled(
            x_squares=factor * x_step * (x_step + x_sizes),
            y_squares=factor * y_step * (y_step + y_sizes),
            x_sums=xp.zeros_like(x_step),
            y_sums=xp.zeros_like(y_step),
        )
        return ours + theirs + step

    def without(self, other: Moments) -> Moments:
        """Remove samples that were added before; refuse if the remainder is empty or lost in rounding.

        A feature or a target that does not vary any more, as the code of classes of which only one is left, is exactly
        constant in what is returned.
        """
        remainder = self - other
        if remainder.weight == 0.0:
            raise ValueError("Expected some samples to be left, got all to forget: make a new model instead.")
        xp = array_namespace(self.gram)
        weight = remainder.weight
        if remainder.cancelled is None:
            return remainder
        unit = _ROUNDING * float(xp.finfo(self.gram.dtype).eps)
        x_squares = xp.linalg.diagonal(remainder.gram)
        x_noise = unit * remainder.cancelled.x_squares
        y_squares = remainder.target_sq
        y_noise = unit * remainder.cancelled.y_squares
        # A variance of zero may come out negative by rounding; one below that shows that other samples were added.
        if bool(xp.any(x_squares < -1e3 * x_noise)) or bool(xp.any(y_squares < -1e3 * y_noise)):
            raise ValueError(
                "Expected samples that this model has learned, got some whose removal leaves a negative variance: forget only "
                "what was learned, with the weights it was learned with."
            )
        _check_noise("features", xp.sum(x_noise), xp.sum(x_squares), weight * xp.sum(remainder.x_mean**2))
        for k in range(self.n_targets):
            _check_noise("targets", y_noise[k], y_squares[k], weight * remainder.y_mean[k] ** 2)
        x_varies, y_varies = x_squares > x_noise, y_squares > y_noise
        zeros = xp.zeros_like(remainder.gram)
        return replace(
            remainder,
            gram=xp.where(x_varies[:, None] & x_varies[None, :], remainder.gram, zeros),
            cross=xp.where(x_varies[:, None] & y_varies[None, :], remainder.cross, zeros[:, :1]),
            target_sq=xp.where(y_varies, positive_part(y_squares), xp.zeros_like(y_squares)),
        )

    @property
    def rounding_share(self) -> float:
        """The largest share of the variance of the features, or of a target, that may be rounding; zero if nothing was removed.

        A certificate cannot prove a gap much below it.
        """
        if self.cancelled is None:
            return 0.0
        xp = array_namespace(self.gram)
        unit = _ROUNDING * float(xp.finfo(self.gram.dtype).eps)
        spread = float(xp.sum(xp.linalg.diagonal(self.gram)))
        shares = [unit * float(xp.sum(self.cancelled.x_squares)) / spread if spread > 0 else 0.0]
        for k in range(self.n_targets):
            variation = float(self.target_sq[k])
            shares.append(unit * float(self.cancelled.y_squares[k]) / variation if variation > 0 else 0.0)
        return max(shares)

    def scaled(self, factor: float) -> Moments:
        """Multiply every sample's weight: 0.99 at each step forgets what is older than some hundred steps."""
        if not (math.isfinite(factor) and factor >= 0.0):
            raise ValueError(f"Expected a finite factor of at least 0, got {factor}.")
        if factor == 1.0:
            return self
        return replace(
            self,
            weight=factor * self.weight,
            gram=factor * self.gram,
            cross=factor * self.cross,
            target_sq=factor * self.target_sq,
            cancelled=None if self.cancelled is None else self.cancelled.scaled(factor),
        )

    def rescaled(self, scales: Array) -> Moments:
        """Divide every feature by its scale (p,), as if the samples had been."""
        return replace(
            self,
            x_mean=self.x_mean / scales,
            gram=self.gram / (scales[:, None] * scales[None, :]),
            cross=self.cross / scales[:, None],
            cancelled=None if self.cancelled is None else self.cancelled.rescaled(scales),
        )

    def moved_to(self, like: Array) -> Moments:
        """Bring the arrays to the library and the device of another."""
        return Moments(
            self.weight,
            move_to(self.x_mean, like),
            move_to(self.y_mean, like),
            move_to(self.gram, like),
            move_to(self.cross, like),
            move_to(self.target_sq, like),
            None if self.cancelled is None else self.cancelled.moved_to(like),
        )

    def uncentred(self) -> Moments:
        """Move the origin back to zero: the moments that a model without intercept learns from."""
        xp = array_namespace(self.gram)
        weight = self.weight
        cancelled = self.cancelled
        if cancelled is not None:
            # Products of means have the rounding of the means.
            cancelled = Cancelled(
                cancelled.x_squares + weight * self.x_mean**2 + cancelled.x_sums**2 / weight,
                cancelled.y_squares + weight * self.y_mean**2 + cancelled.y_sums**2 / weight,
                xp.zeros_like(self.x_mean),
                xp.zeros_like(self.y_mean),
            )
        return Moments(
            weight=weight,
            cancelled=cancelled,
            x_mean=xp.zeros_like(self.x_mean),
            y_mean=xp.zeros_like(self.y_mean),
            gram=self.second_moment,
            cross=self.sum_yx,
            target_sq=self.target_sq + self.weight * self.y_mean**2,
        )

    # The "past information" of the paper's Algorithm 2, lines 5 to 9, derived on demand.

    @property
    def sum_yx(self) -> Array:
        """The paper's A: the sum of ``y x``, of shape (p, K)."""
        return self.cross + self.weight * self.x_mean[:, None] * self.y_mean[None, :]

    @property
    def second_moment(self) -> Array:
        """The paper's B with its entries laid out as a matrix: the sum of ``x x'``, of shape (p, p)."""
        return self.gram + self.weight * self.x_mean[:, None] * self.x_mean[None, :]

    @property
    def sum_y(self) -> Array:
        """The paper's c: the sum of ``y``, of shape (K,)."""
        return self.weight * self.y_mean

    @property
    def sum_x(self) -> Array:
        """The paper's D: the sum of ``x``, of shape (p,)."""
        return self.weight * self.x_mean

    def __repr__(self) -> str:
        return f"Moments(weight={self.weight}, n_features={self.n_features}, n_targets={self.n_targets})"


@dataclass
class Accumulator:
    """Builds moments block by block: the one mutable object of this module, which owns its arrays until ``freeze``."""

    weight: float
    x_mean: Array
    y_mean: Array
    gram: Array
    cross: Array
    target_sq: Array
    single: bool = False  # whether products of features are found in single precision; all else is in double precision
    begun_from: Moments | None = None  # the moments of ``thaw``, if they are a difference
    # Memory that all blocks share: fresh pages for every block cost more than the arithmetic.
    _buffers: dict[str, Any] = field(default_factory=dict)
    _squares: dict[Any, Any] = field(default_factory=dict)
    _pending: list[Any] = field(default_factory=list)

    @classmethod
    def empty(cls, n_features: int, n_targets: int, like: Array | None = None, *, single: bool = False) -> Accumulator:
        """Begin without samples."""
        xp: Any = np if like is None else array_namespace(like)
        # Double precision wherever the library and the device have it: sums of many small terms need it.
        kind = {"dtype": xp.float64} if xp is np else widest(like)
        return cls(
            weight=0.0,
            x_mean=xp.zeros(n_features, **kind),
            y_mean=xp.zeros(n_targets, **kind),
            gram=xp.zeros((n_features, n_features), **kind),
            cross=xp.zeros((n_features, n_targets), **kind),
            target_sq=xp.zeros(n_targets, **kind),
            single=single,
        )

    @classmethod
    def thaw(cls, moments: Moments) -> Accumulator:
        """Begin with moments, which are not changed."""
        gram = array_namespace(moments.gram).asarray(moments.gram, copy=True)
        return cls(
            moments.weight,
            moments.x_mean,
            moments.y_mean,
            gram,
            moments.cross,
            moments.target_sq,
            begun_from=None if moments.cancelled is None else moments,
        )

    def freeze(self) -> Moments:
        """Return the moments of all that was added; nothing is to be added afterwards."""
        if self._pending:
            self._add_pending()
        moments = Moments(self.weight, self.x_mean, self.y_mean, self.gram, self.cross, self.target_sq)
        past = self.begun_from
        if past is None or past.cancelled is None:
            return moments
        xp = array_namespace(self.gram)
        added = Cancelled(
            positive_part(xp.linalg.diagonal(self.gram) - xp.linalg.diagonal(past.gram)),
            positive_part(self.target_sq - past.target_sq),
            xp.abs(moments.sum_x - past.sum_x),
            xp.abs(moments.sum_y - past.sum_y),
        )
        return replace(moments, cancelled=past.cancelled + added)

    def add(self, X: Array, y: Array, sample_weight: Array | None = None) -> Accumulator:
        """Add samples (n, ...), targets (n, K) and weights (n,)."""
        xp = array_namespace(X)
        p = self.x_mean.shape[0]
        if (p, self.y_mean.shape[0]) != (math.prod(X.shape[1:]), y.shape[1]):
            raise _different(self.cross.shape, (math.prod(X.shape[1:]), y.shape[1]))
        if is_sparse(X):
            return self._add_sparse(X, y, sample_weight)
        rows = max(1, block_bytes(X, _BLOCK_BYTES) // (8 * p))
        if xp.finfo(self.x_mean.dtype).bits == 32:
            rows = min(rows, _SINGLE_ROWS)
        for start in range(0, X.shape[0], rows):
            block = slice(start, min(start + rows, X.shape[0]))
            x = xp.reshape(X[block, ...], (-1, p))
            self._add_block(x, y[block, :], None if sample_weight is None else sample_weight[block])
        return self

    def _add_block(self, x: Array, y: Array, weight: Array | None) -> None:
        """Add a block: centred at the mean so far, if it weighs no more than all samples so far; else at its own mean.

        The first way saves a pass over the block. Its products are too large by the square of the step between the two means,
        of which a correction subtracts at most half, so that no digits are lost. In single precision that would cost digits,
        and every block is centred at its own mean.
        """
        xp = array_namespace(x)
        wide = self.x_mean.dtype
        # Products of narrower samples are exact in double precision; NumPy widens them as it centres them.
        x = x if is_numpy_array(x) else xp.astype(x, wide, copy=False)
        y = xp.astype(y, wide, copy=False)
        total = float(x.shape[0]) if weight is None else float(xp.sum(xp.astype(weight, wide)))
        if total == 0.0:
            return
        merged = self.weight + total
        at_own_mean = self.single or total > self.weight
        share = xp.ones(x.shape[0], dtype=wide, device=device(x)) if weight is None else xp.astype(weight, wide)
        rows, x_step = self._shifted("x", x, self.x_mean, share, total, centre=at_own_mean)
        y_rows, y_step = self._shifted("y", y, self.y_mean, share, total, centre=at_own_mean)
        if weight is not None:
            roots = xp.sqrt(share)[:, None]
            rows *= roots
            y_rows *= roots
        # The factor of the product of the steps, in Chan's formula or in the correction.
        factor = (self.weight if at_own_mean else -total) / merged * total
        self._add_gram(to_single(rows) if self.single else rows)
        self.cross = self.cross + (rows.T @ y_rows + factor * x_step[:, None] * y_step[None, :])
        self.target_sq = self.target_sq + (xp.sum(y_rows**2, axis=0) + factor * y_step**2)
        move = math.sqrt(abs(factor)) * x_step
        if factor > 0.0 and not self.single:
            self._add_gram(move[None, :])
        elif factor != 0.0:
            self._pending.append(move)
        if len(self._pending) == _MOST_PENDING:
            self._add_pending()
        self.x_mean = self.x_mean + total / merged * x_step
        self.y_mean = self.y_mean + total / merged * y_step
        self.weight = merged

    def _shifted(
        self, buffer: str, values: Array, mean: Array, share: Array, total: float, *, centre: bool
    ) -> tuple[Array, Array]:
        """Subtract the mean so far from the rows of a block, or with ``centre`` its own mean.

        Returns the rows, and the step from the mean so far to that of the block. In the first block, which has no mean so far,
        the first row takes its place.
        """
        xp = array_namespace(values)
        is_first = self.weight == 0.0
        shift = xp.astype(values[0, :], mean.dtype) if is_first else mean
        if is_numpy_array(values):
            if buffer not in self._buffers or len(self._buffers[buffer]) < len(values):
                self._buffers[buffer] = np.empty(values.shape, mean.dtype)
            rows = np.subtract(values, shift, out=self._buffers[buffer][: len(values)])
        else:
            rows = values - shift
        step = (share @ rows) / total
        if centre:  # after the large part of the mean its small rest: one subtraction of both would lose digits
            rows -= step
        return rows, shift + step - mean if is_first else step

    def _add_sparse(self, X: Any, y: Array, sample_weight: Array | None) -> Accumulator:
        """Add sparse rows without filling in their zeros, where that is faster and loses no digits."""
        weight = np.ones(X.shape[0]) if sample_weight is None else sample_weight
        total = float(np.sum(weight))
        if total == 0.0:
            return self
        x = X.astype(np.float64, copy=False).tocsr()
        mean = (weight / total) @ x
        y_mean = (weight / total) @ y
        squares = weight @ (x * x)
        # Centred products are differences here, which lose digits where the mean is large against the spread.
        is_exact = bool(np.all(squares - total * mean**2 >= _LEAST_SPREAD * squares))
        if not is_exact or x.nnz > _LARGEST_DENSITY * math.prod(x.shape):
            rows = max(1, _BLOCK_BYTES // (8 * x.shape[1]))
            for block in (slice(start, start + rows) for start in range(0, x.shape[0], rows)):
                self._add_block(x[block].toarray(), y[block], weight[block])
            return self
        merged = self.weight + total
        x_step = mean - self.x_mean
        y_step = y_mean - self.y_mean
        factor = self.weight / merged * total
        targets = weight[:, None] * (y - y_mean)
        self.gram += weighted_gram(x, weight)
        self.gram += factor * np.outer(x_step, x_step) - total * np.outer(mean, mean)
        self.cross = self.cross + x.T @ targets + factor * np.outer(x_step, y_step)
        self.target_sq = self.target_sq + np.sum(targets * (y - y_mean), axis=0) + factor * y_step**2
        self.x_mean = self.x_mean + (total / merged) * x_step
        self.y_mean = self.y_mean + (total / merged) * y_step
        self.weight = merged
        return self

    def _add_pending(self) -> None:
        """Subtract the collected corrections in one product; in single precision, where blocks are centred, they are added."""
        self._add_gram(array_namespace(self.x_mean).stack(self._pending), 1.0 if self.single else -1.0)
        self._pending.clear()

    def _add_gram(self, rows: Array, sign: float = 1.0) -> None:
        """Add ``rows.T @ rows``: one rank-k update of BLAS where the library sees the symmetry, as NumPy does."""
        if is_numpy_array(rows):
            square = self._squares[rows.dtype] = np.matmul(rows.T, rows, out=self._squares.get(rows.dtype))
        else:
            square = rows.T @ rows
        if sign > 0:
            self.gram += square
        else:
            self.gram -= square


def _check_alike(first: Moments, second: Moments) -> None:
    """Refuse moments of other numbers of features or targets, or in arrays of another library or device."""
    if first.cross.shape != second.cross.shape:
        raise _different(first.cross.shape, second.cross.shape)
    expected = place(first.x_mean)
    got = place(second.x_mean)
    if expected != got:
        raise ValueError(
            f"Expected moments in arrays of {expected}, got some of {got}: move these, or merge the models, which does it."
        )


def _check_noise(kind: str, noise: Array, spread: Array, mean_square: Array) -> None:
    """Refuse a remainder whose variance is lost in rounding, unless both are negligible against its mean square."""
    if bool(noise > _LARGEST_NOISE * spread) and bool(noise > _NO_VARIATION * mean_square):
        share = float(noise) / float(spread) if float(spread) > 0 else math.inf
        raise ValueError(
            f"Expected {kind} to forget that leave digits of the others, got some so large that rounding is {share:.0e} of the "
            "variance that is left: fit a new model to the samples that are left."
        )


def _different(expected: tuple[int, int], got: tuple[int, int]) -> ValueError:
    """Describe moments of other numbers of features and targets than expected."""
    return ValueError(
        f"Expected moments of {expected[0]} features and {expected[1]} targets, got {got[0]} and {got[1]}: only summaries of "
        "samples of one kind can be combined."
    )
