"""Data fits: the smooth half of a batch of problems, as solvers see it.

Conventions
-----------
Solvers see ``B`` independent problems at once (targets, folds, alphas of a path), each with ``K`` targets. Weights are rows,
``(B K, p)``, problem by problem; those that a data fit is given may also be tensors, of which it sees the rows. The division
by the total weight happens here and nowhere else, so that alpha means the same for any number of samples. The intercept is
eliminated here, exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from tracelearn.arrays.array_api import Array, array_namespace, as_dtype, is_on_gpu, move_to, to_numpy, to_single
from tracelearn.arrays.linalg import cholesky_solver, positive_part
from tracelearn.arrays.subspaces import Subspaces
from tracelearn.moments import Moments
from tracelearn.problems.operators import Alike, Operator, Rows, compressed, largest_eigenvalue

__all__ = [
    "DataFit",
    "Distinct",
    "Evaluation",
    "Gram",
    "InBasis",
    "Modelled",
    "Solvers",
    "SpectralGram",
    "Squares",
    "least_value",
    "lipschitz",
    "repeated",
    "short_basis",
    "span",
    "stacked",
    "summed",
]

# Of the shift: in single precision smaller eigenvalues are left out of solves. It moves gaps by 1e-4 or less (measured).
_SMALL_SHARE = 0.01
_WAITS = 256  # rows of a matrix whose eigendecomposition takes a GPU milliseconds, one matrix after the other


class Evaluation(Protocol):
    """What is known of the data fit at one W: enough for a step and for a certificate."""

    @property
    def value(self) -> Array:
        """The data fit of the objective, (B,)."""

    @property
    def gradient(self) -> Array:
        """Its gradient, (B K, p)."""

    def dual_value(self, most: Array) -> Array:
        """Evaluate the dual objective (B,) at the dual point of this W, times the best scale of at most ``most`` (B,) <= 1."""

    def errors(self, unit: float) -> tuple[Array, Array]:
        """Bound what the dual value (B,) and the length of the gradient (B,) are off by.

        By rounding, which is ``unit`` of what was summed: where large terms cancel, it is more than the result shows. And by
        forces that do not balance, as a free intercept asks.
        """

    def least_value(self, error: Array) -> Array:
        """Bound the minimum (B,) of the data fit alone from below: the certificate where nothing is penalised.

        The length of the gradient may be off by ``error`` (B,).
        """


class Solvers(NamedTuple):
    """The names of solvers: for an answer, and for a path to choose alpha by, which needs no small gap."""

    best: str
    path: str


class DataFit(Protocol):
    """What a solver asks of the data fit."""

    @property
    def operator(self) -> Operator:
        """The Hessian, or a bound of it, without the ridge."""

    @property
    def ridge(self) -> Array:
        """The strengths (B,) of the squared norm."""

    @property
    def n_groups(self) -> int:
        """The number of groups of problems whose operators differ: they must stay together."""

    @property
    def n_problems(self) -> int:
        """The number B of problems."""

    @property
    def n_features(self) -> int:
        """The number p of features."""

    @property
    def solvers(self) -> Solvers:
        """The solvers that suit this form: by factorisation, by models of second order, or by gradients alone."""

    @property
    def at_zero(self) -> Evaluation:
        """The evaluation at W = 0."""

    def evaluate(self, W: Array, near: Any = None) -> Evaluation:
        """Evaluate at W; an evaluation ``near`` it may save time."""

    def updater(self, shift: Array) -> Callable[[Array, Array], Array]:
        """Return the function of W and pull that minimises ``f(V) - <pull, V> + shift/2 |V|^2`` over V, of the shape of W.

        Or a quadratic bound of it around W.
        """

    def intercept(self, W: Array) -> Array:
        """Find the best intercept (B K,) for W."""

    def model(self, W: Array, at: Any) -> Squares | None:
        """Expand to second order around W, where ``at`` is the evaluation; None where that is too large."""

    @property
    def model_error(self) -> float:
        """What a model is off by, as a share of what it predicts: how well it is worth solving."""

    @property
    def is_exact(self) -> bool:
        """Whether models are as good as they can be."""

    def exact(self) -> DataFit:
        """State the same problems with models as good as they can be."""

    @property
    def mean_curvature(self) -> float:
        """The second derivative at W = 0, averaged over the features: the scale of a step."""

    def within(self, subspaces: Subspaces) -> Self:
        """State the problems for the cores of weights in subspaces, in one pass over the samples."""

    def take(self, problems: Array) -> Self:
        """Keep some of the problems, sharing all that was computed."""


def lipschitz(fit: DataFit) -> float:
    """Bound the Lipschitz constant of the gradient: the largest eigenvalue of the Hessian, or of its bound, and the ridge."""
    return fit.operator.largest() + 2.0 * float(array_namespace(fit.ridge).max(fit.ridge))


def repeated(per_problem: Array, n_rows: int) -> Array:
    """Repeat a (B,) array for each of the rows of its problem."""
    count = n_rows // per_problem.shape[0]
    return per_problem if count == 1 else array_namespace(per_problem).repeat(per_problem, count)


def summed(per_row: Array, n_problems: int) -> Array:
    """Sum an array over the rows of each problem."""
    xp = array_namespace(per_row)
    return per_row if per_row.shape == (n_problems,) else xp.sum(xp.reshape(per_row, (n_problems, -1)), axis=1)


def least_value(value: Array, gradient: Array, curvature: Array, error: Array) -> Array:
    """Bound the minimum of a function from its value, its gradient and a lower bound (B,) of its curvature.

    ``f >= f(w) - |g|^2 / (2 m)`` where ``f - m/2 |.|^2`` is convex; no loss is below zero. The length of the gradient may be
    off by ``error`` (B,): where features are collinear and the ridge is tiny, that is what the bound is made of.
    """
    xp = array_namespace(value)
    square = (xp.sqrt(summed(xp.sum(gradient**2, axis=1), value.shape[0])) + error) ** 2
    # Divided only where something is left: a gradient divided by the curvature of a tiny ridge would overflow.
    bounded = square < 2.0 * curvature * value
    known = xp.where(bounded, curvature, xp.ones_like(curvature))
    return xp.where(bounded, value - square / (2.0 * known), xp.zeros_like(value))


@dataclass(frozen=True, eq=False)
class Span:
    """What rows (n, p) span about an origin (p,), by principal components: those of more than 1e-10 of the largest variance."""

    rows: Array
    origin: Any
    vectors: Array  # eigenvectors (n, r) of the products of rows
    lengths: Array  # the roots (r,) of their eigenvalues
    rest: Array  # eigenvectors (n, n - r) that are left out

    @classmethod
    def of(cls, rows: Array, origin: Any = 0.0) -> Span:
        """Decompose the products of rows."""
        xp, centred = array_namespace(rows), rows - origin
        values, vectors = xp.linalg.eigh(centred @ xp.matrix_transpose(centred))
        first = min(_count(values <= 1e-10 * values[-1]), values.shape[0] - 1)  # eigenvalues ascend
        return cls(rows, origin, vectors[:, first:], xp.sqrt(positive_part(values[first:])), vectors[:, :first])

    @property
    def coordinates(self) -> Array:
        """The coordinates (n, r) of the rows."""
        return self.vectors * self.lengths

    @cached_property
    def basis(self) -> Array:
        """The basis (p, r), which takes most of the time and is not needed for ridge regression."""
        xp = array_namespace(self.rows)
        lengths = xp.where(self.lengths > 0, self.lengths, xp.ones_like(self.lengths))
        return xp.matrix_transpose(self.rows - self.origin) @ (self.vectors / lengths)

    @cached_property
    def is_exact(self) -> bool:
        """Whether no component is between what is found exactly and nothing at all."""
        xp, lengths = array_namespace(self.rows), self.lengths
        if not bool(lengths[0] > 1e-3 * lengths[-1]):
            return False
        rest = xp.matrix_transpose(self.rest) @ (self.rows - self.origin)
        return bool(xp.sum(rest**2) <= (100.0 * float(xp.finfo(rest.dtype).eps)) ** 2 * xp.sum(lengths**2))


@dataclass(frozen=True, eq=False)
class Distinct:
    """Rows (n, p) whose entries are r different ones and copies of these, or what all rows have in common: an exact span.

    Symmetric matrices have half of their entries twice, and images have a margin. Of q equal entries one is kept, times the
    root of q, which changes neither products of rows nor lengths of weights.
    """

    is_exact: ClassVar[bool] = True
    rows: Array
    origin: Array
    kept: Array  # (r,), places of the entries that differ, on the host
    copied: Array  # (p,), which of these an entry is equal to; r where all rows are equal

    @classmethod
    def of(cls, rows: Array, origin: Array) -> Distinct | None:
        """Look for copies; None where they are less than a quarter of all entries."""
        xp, p = array_namespace(rows), rows.shape[1]
        # Sums of some rows, entry by entry in the same order, are equal where entries are; all rows decide.
        few = to_numpy(rows[:: -(-rows.shape[0] // 16), :])
        keys = np.sum(np.sqrt(1.0 + np.arange(len(few)))[:, None] * few, axis=0)
        _, first, groups = np.unique(keys, return_index=True, return_inverse=True)
        likely = first[groups]
        if len(first) > 0.75 * p:
            return None
        same = to_numpy(xp.all(rows == xp.take(rows, move_to(likely, rows), axis=1), axis=0))
        place = np.where(same, likely, np.arange(p))
        none = to_numpy(xp.all(rows - origin == 0, axis=0))
        kept = np.flatnonzero((place == np.arange(p)) & ~none)
        if not 0 < len(kept) <= 0.75 * p:
            return None
        copied = np.where(none[place], len(kept), np.searchsorted(kept, place))
        return cls(rows, xp.take(origin, move_to(place, rows), axis=0), kept, copied)

    @cached_property
    def _roots(self) -> Array:
        """The roots (r,) of the numbers of equal entries."""
        counts = np.bincount(self.copied, minlength=len(self.kept) + 1)[: len(self.kept)]
        return move_to(np.sqrt(counts), self.rows, self.rows.dtype)

    @property
    def coordinates(self) -> Array:
        """The coordinates (n, r) of the rows."""
        xp, kept = array_namespace(self.rows), move_to(self.kept, self.rows)
        return (xp.take(self.rows, kept, axis=1) - xp.take(self.origin, kept, axis=0)) * self._roots

    @cached_property
    def basis(self) -> Array:
        """The basis (p, r)."""
        members = move_to(self.copied[:, None] == np.arange(len(self.kept)), self.rows, self.rows.dtype)
        return members / self._roots


def span(rows: Array) -> tuple[Array, Array]:
    """Find an orthonormal basis (p, r) of rows (n, p) and their coordinates (n, r), r at most the smaller of n and p.

    By principal components where they are exact; else by QR, which takes twice as long.
    """
    xp = array_namespace(rows)
    largest = xp.max(xp.abs(rows))
    if rows.shape[0] <= rows.shape[1] and bool(largest > 0):
        found = Span.of(rows / largest)  # squares of these do not overflow
        if found.is_exact:
            return found.basis, largest * found.coordinates
    basis, coordinates = xp.linalg.qr(xp.matrix_transpose(rows))
    return basis, xp.matrix_transpose(coordinates)


def _count(true: Array) -> int:
    xp = array_namespace(true)
    return int(xp.sum(xp.astype(true, xp.int64)))


def short_basis(rows: Array) -> Array | None:
    """Find an orthonormal basis (p, r) of many rows (n, p) that span less than three quarters of all p dimensions."""
    xp, p = array_namespace(rows), rows.shape[1]
    values, vectors = xp.linalg.eigh(xp.matrix_transpose(rows) @ rows)
    rank = _count(values > 10.0 * p * float(xp.finfo(values.dtype).eps) * values[-1])
    return vectors[:, p - rank :] if 0 < rank < 0.75 * p else None


def _against(rows: Array, table: Array) -> Array:
    """Multiply rows (R, p) with a vector (p,), or the rows of each group with its own of a table (G, p): (R,)."""
    if table.ndim == 1:
        return rows @ table
    xp = array_namespace(rows)
    groups = xp.reshape(rows, (table.shape[0], -1, table.shape[1]))
    return xp.reshape(xp.sum(groups * table[:, None, :], axis=2), (-1,))


# Solves are functions of arrays, without a memory of their own: a GPU can record them.


def _in_eigenbasis(vectors: Array, divisor: Array, rows: Array) -> Array:
    """Divide the coordinates of rows in eigenvectors by divisors (R, p); or, group by group, (G, R / G, p)."""
    xp = array_namespace(rows)
    inside = xp.reshape(rows, divisor.shape) @ vectors
    return xp.reshape((inside / divisor) @ xp.matrix_transpose(vectors), rows.shape)


def _in_span(inner: Rows, basis: Array, shift: Array, rows: Array) -> Array:
    """Solve for coordinates in a basis (p, r); outside the shift alone divides."""
    inside = rows @ basis
    back = array_namespace(rows).matrix_transpose(basis)
    return (rows + (shift[:, None] * inner(inside) - inside) @ back) / shift[:, None]


def _in_principal(principal: Array, share: Array, shift: Array, rows: Array) -> Array:
    """Solve in a basis (p, r) of eigenvectors, given the share (R, r) of each that is taken away."""
    return (rows - ((rows @ principal) * share) @ array_namespace(rows).matrix_transpose(principal)) / shift[:, None]


def _solved(solve: Rows, constant: Array, W: Array, pull: Array) -> Array:
    """Solve normal equations, whatever W was."""
    xp = array_namespace(pull)
    return xp.reshape(solve(constant + xp.reshape(pull, constant.shape)), W.shape)


# --- the squared loss, from moments -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Gram:
    """A p by p matrix for p up to some thousands: one Cholesky factorisation for each shift, kept for the last shift."""

    has_factor: ClassVar[bool] = True
    shares_shift: ClassVar[bool] = True
    n_groups: ClassVar[int] = 1
    matrix: Array
    _last: dict[float, Rows] = field(default_factory=dict, init=False, repr=False)

    def apply(self, rows: Array) -> Array:
        """Multiply every row, by its own matrix where there are several."""
        xp, groups = array_namespace(rows), self.matrix.shape[:-2]
        return xp.reshape(xp.reshape(rows, (*groups, -1, rows.shape[1])) @ self.matrix, rows.shape)

    def single(self) -> Gram:
        """Return the same in single precision."""
        return Gram(to_single(self.matrix))

    def solver(self, shift: Array) -> Rows:
        """Return the solve for shifts (R,) that are equal."""
        level = float(shift[0])
        solve = self._last.get(level)
        if solve is None:
            solve = cholesky_solver(self.matrix, level)
            self._last.clear()
            self._last[level] = solve
        return solve  # not looked up again: another thread may have cleared

    def largest(self) -> float:
        """Bound the largest eigenvalue from above, within a few per cent."""
        return largest_eigenvalue(lambda V: self.matrix @ V, self.matrix)

    @cached_property
    def mean_eigenvalue(self) -> float:
        """The mean of the eigenvalues, which is that of the diagonal."""
        xp = array_namespace(self.matrix)
        return float(xp.mean(xp.linalg.diagonal(self.matrix)))

    def smallest(self) -> float:
        """Find the smallest eigenvalue, less what rounding is worth; zero if that leaves nothing."""
        return _above_rounding(array_namespace(self.matrix).linalg.eigvalsh(self.matrix))


def _above_rounding(values: Array) -> float:
    """Find the smallest of eigenvalues (..., p), less what rounding is worth; zero if that leaves nothing."""
    xp = array_namespace(values)
    rounding: float = 10 * values.shape[-1] * float(xp.finfo(values.dtype).eps) * float(xp.max(values))
    return max(0.0, float(xp.min(values)) - rounding)


@dataclass(frozen=True, eq=False)
class SpectralGram(Gram):
    """A p by p matrix, or a stack (G, p, p) of them, one for each group of rows: one eigendecomposition for all shifts.

    Every row has a shift of its own. That is more expensive at first, and then a path, its folds and its ridges share it.
    """

    shares_shift: ClassVar[bool] = False

    @property
    def n_groups(self) -> int:  # type: ignore[override]
        """The number of matrices."""
        return 1 if self.matrix.ndim == 2 else int(self.matrix.shape[0])

    @cached_property
    def _eigen(self) -> tuple[Array, Array]:
        values, vectors = array_namespace(self.matrix).linalg.eigh(self.matrix)
        return positive_part(values), vectors

    def single(self) -> SpectralGram:
        """Return the same in single precision; what is decomposed is decomposed in double first."""
        single, (values, vectors) = array_namespace(self.matrix).float32, self._eigen
        found = SpectralGram(as_dtype(self.matrix, single))
        found.__dict__["_eigen"] = as_dtype(values, single), as_dtype(vectors, single)
        return found

    def solver(self, shift: Array) -> Rows:
        """Return the solve for shifts (R,)."""
        values, vectors = self._eigen
        level = array_namespace(shift).reshape(shift, (*self.matrix.shape[:-2], -1, 1))
        return partial(_in_eigenbasis, vectors, values[..., None, :] + level)

    def largest(self) -> float:
        """Find the largest eigenvalue."""
        return float(array_namespace(self.matrix).max(self._eigen[0]))

    def smallest(self) -> float:
        """Find the smallest eigenvalue, less what rounding is worth; zero if that leaves nothing."""
        return _above_rounding(self._eigen[0])


@dataclass(frozen=True, eq=False)
class AlikeGram(SpectralGram):
    """A stack of matrices that are alike: on a GPU their eigendecompositions would wait for each other, and one is enough."""

    alike: Alike

    def single(self) -> AlikeGram:
        """Return the same in single precision."""
        return AlikeGram(to_single(self.matrix), self.alike.single())

    def solver(self, shift: Array) -> Rows:
        """Return the solve for shifts (R,)."""
        return self.alike.solver(shift)


@dataclass(frozen=True, eq=False)
class InBasis:
    """An operator on the coordinates in an orthonormal ``basis`` (p, r), zero outside: fewer samples than features.

    The span of the samples is all that their products see. Every group of rows shares the basis.
    """

    has_factor: ClassVar[bool] = True
    inner: Gram
    basis: Array

    @property
    def shares_shift(self) -> bool:
        """Whether all rows of one solve must have the same shift."""
        return self.inner.shares_shift

    @property
    def n_groups(self) -> int:
        """The number of matrices."""
        return self.inner.n_groups

    def apply(self, rows: Array) -> Array:
        """Multiply the coordinates of every row."""
        return self.inner.apply(rows @ self.basis) @ array_namespace(rows).matrix_transpose(self.basis)

    @cached_property
    def _principal(self) -> Array:
        """The eigenvectors (p, r) of the one matrix, as vectors of all features."""
        return self.basis @ self.inner._eigen[1]  # type: ignore[attr-defined]

    def solver(self, shift: Array) -> Rows:
        """Return the solve inside the span; outside the shift alone divides."""
        # One basis of eigenvectors instead of two changes of basis.
        if isinstance(self.inner, SpectralGram) and self.n_groups == 1:
            values, principal = self.inner._eigen[0], self._principal
            if values.ndim == 1 and values.dtype == array_namespace(values).float32:
                # Eigenvalues ascend. Most are too small to matter beside the shift, and what they do is left to the certificate.
                first = _count(values < _SMALL_SHARE * array_namespace(shift).min(shift))
                values, principal = values[first:], principal[:, first:]
            return partial(_in_principal, principal, values / (values + shift[:, None]), shift)
        return partial(_in_span, self.inner.solver(shift), self.basis, shift)

    def single(self) -> InBasis:
        """Return the same in single precision."""
        return InBasis(self.inner.single(), to_single(self.basis))

    def largest(self) -> float:
        """Bound the largest eigenvalue from above, within a few per cent."""
        return self.inner.largest()

    @property
    def mean_eigenvalue(self) -> float:
        """The mean of the p eigenvalues, of which at most r are not zero."""
        return self.inner.mean_eigenvalue * float(self.basis.shape[1] / self.basis.shape[0])

    def smallest(self) -> float:
        """Return zero: with fewer samples than features there is a null space."""
        return 0.0


def stacked(operators: Sequence[Any]) -> Operator:
    """Join operators of one kind, one for each group of rows, to be solved by one stacked eigendecomposition."""
    first = operators[0]
    if isinstance(first, InBasis):
        inner = stacked(list(map(attrgetter("inner"), operators)))
        return InBasis(inner, first.basis)  # type: ignore[arg-type]
    matrices = array_namespace(first.matrix).stack(list(map(attrgetter("matrix"), operators)))
    many = len(operators) > 2 and matrices.shape[-1] >= _WAITS and is_on_gpu(matrices)
    alike = Alike.of(matrices) if many else None
    return SpectralGram(matrices) if alike is None else AlikeGram(matrices, alike)


@dataclass(frozen=True, eq=False)
class SquaresEvaluation:
    """With ``r`` the residual and ``y`` the target, centred: ``value = |r|^2`` and ``slope = <r, y>``, as means."""

    value: Array
    gradient: Array
    slope: Array
    squares: Squares
    W: Array | None = None  # None for zero

    def errors(self, unit: float) -> tuple[Array, Array]:
        """Estimate them from the variances of the products ``w_i x_i``, which cancel where features are collinear."""
        fit, xp, B = self.squares, array_namespace(self.value), self.value.shape[0]
        target = summed(fit.target, B)
        if fit.variances is None:
            return unit * target, xp.zeros_like(target)
        scatter = ridge = xp.zeros_like(target)
        if self.W is not None:
            scatter = summed(_against(self.W**2, fit.variances), B)
            ridge = fit.ridge * summed(xp.sum(self.W**2, axis=1), B)
        spread = xp.sqrt(xp.max(xp.sum(fit.variances, axis=-1))) * (xp.sqrt(target) + xp.sqrt(scatter))
        return unit * (target + scatter + ridge), unit * 2.0 * (spread + xp.sqrt(fit.ridge * ridge))

    def least_value(self, error: Array) -> Array:
        """Bound the least squares from below, where the length of the gradient may be off by an error."""
        return least_value(self.value, self.gradient, self.squares.least_curvature, error)

    def dual_value(self, most: Array) -> Array:
        """Evaluate ``2 t <r, y> - t^2 |r|^2``, which is largest at ``t = <r, y> / |r|^2``."""
        xp = array_namespace(self.value)
        best = positive_part(self.slope / xp.where(self.value > 0, self.value, xp.ones_like(self.value)))
        scale = xp.minimum(most, best)
        return 2.0 * scale * self.slope - scale**2 * self.value


@dataclass(frozen=True, eq=False)
class Squares:
    """The mean of ``(y - <W, x> - b)^2`` plus ``ridge |W|^2``, from centred products alone.

    ``operator`` is twice the covariance C of the features, ``cross`` (B K, p) their covariance h with the targets and
    ``target`` (B K,) the variance v of the targets. With the ridge, a row w has value ``w'Cw - 2h'w + v + ridge w'w``.
    """

    operator: Operator
    cross: Array
    target: Array
    ridge: Array
    x_mean: Array
    y_mean: Array
    variances: Array | None = None  # of the features (p,); not known of a model of second order, which proves nothing

    @property
    def n_groups(self) -> int:
        """The number of groups of problems whose operators differ."""
        return self.operator.n_groups

    @property
    def n_problems(self) -> int:
        """The number B of problems."""
        return int(self.ridge.shape[0])

    @property
    def n_features(self) -> int:
        """The number p of features."""
        return int(self.cross.shape[1])

    @property
    def solvers(self) -> Solvers:
        """ADMM, where the system can be factored; else for a path gradients, of which each costs one pass."""
        return Solvers("admm", "admm") if self.operator.has_factor else Solvers("subspaces", "apg-adm")

    @classmethod
    def of(
        cls,
        moments: Moments,
        *,
        ridge: float = 0.0,
        joint: bool = False,
        spectral: bool = False,
    ) -> Squares:
        """Read moments: one problem for each target, or with ``joint`` one problem of all targets."""
        xp = array_namespace(moments.gram)
        gram = (SpectralGram if spectral else Gram)(moments.gram * (2.0 / moments.weight))
        ridges = xp.full_like(moments.y_mean[:1] if joint else moments.y_mean, ridge)
        cross, target = moments.cross.T / moments.weight, moments.target_sq / moments.weight
        variances = 0.5 * xp.linalg.diagonal(gram.matrix)
        return cls(gram, cross, target, ridges, moments.x_mean, moments.y_mean, variances)

    def lifted(self, basis: Array, origin: Any, variances: Array) -> Squares:
        """Read problems of coordinates in a basis (p, r) about an origin (p,) as problems of all p features.

        The variances of features say what rounding may do; those of all samples serve each part of them.
        """
        back = array_namespace(basis).matrix_transpose(basis)
        operator, x_mean = InBasis(self.operator, basis), origin + self.x_mean @ back  # type: ignore[arg-type]
        return replace(self, operator=operator, cross=self.cross @ back, x_mean=x_mean, variances=variances)

    @property
    def in_coordinates(self) -> Squares:
        """The problems of coordinates again, of an operator in a basis: what is not in their span takes no part in products."""
        operator: Any = self.operator
        return replace(self, operator=operator.inner, cross=self.cross @ operator.basis)

    @classmethod
    def stacked(cls, parts: Sequence[Squares]) -> Squares:
        """Join problems that differ in their samples, the folds of a search: one group of rows for each."""
        xp, found = array_namespace(parts[0].cross), {}
        for name in ("operator", "cross", "target", "ridge", "x_mean", "y_mean", "variances"):
            own = list(map(attrgetter(name), parts))
            # One row for each group, or for each problem.
            tables = xp.stack if name in ("x_mean", "variances") else xp.concat
            found[name] = stacked(own) if name == "operator" else tables(own)
        return cls(**found)

    @property  # not kept: it knows the squares, and memory that a circle holds is free only when Python looks for circles
    def at_zero(self) -> SquaresEvaluation:
        """The evaluation at W = 0: the variance of the targets."""
        value = summed(self.target, self.ridge.shape[0])
        return SquaresEvaluation(value, -2.0 * self.cross, value, self)

    @cached_property
    def least_curvature(self) -> Array:
        """A lower bound (B,) of the curvature: the ridge and the smallest eigenvalue of the system."""
        return self.operator.smallest() + 2.0 * self.ridge

    def evaluate(self, W: Array, near: Any = None) -> SquaresEvaluation:
        """Evaluate value and gradient with one product."""
        xp, n = array_namespace(W), self.ridge.shape[0]
        W = xp.reshape(W, self.cross.shape)
        ridge = repeated(self.ridge, W.shape[0])
        half = 0.5 * self.operator.apply(W) + ridge[:, None] * W - self.cross
        fit = xp.sum(self.cross * W, axis=1)
        slope = self.target - fit
        # |r|^2 = <w, Cw - h> - <h, w> + v, and never below zero but for rounding.
        value = positive_part(xp.sum(W * half, axis=1) + slope)
        return SquaresEvaluation(summed(value, n), 2.0 * half, summed(slope, n), self, W)

    def updater(self, shift: Array) -> Callable[[Array, Array], Array]:
        """Return the solve of the normal equations, shifted."""
        constant = 2.0 * self.cross
        solve = self.operator.solver(repeated(2.0 * self.ridge + shift, constant.shape[0]))
        return partial(_solved, solve, constant)

    def with_ridges(self, ridges: Array) -> tuple[Array, Array]:
        """Minimise with each of A ridges and no penalty: rows (A, B K, p) and intercepts (A, B K); the operator is spectral."""
        xp, (count, p), G = array_namespace(ridges), self.cross.shape, self.n_groups
        each = (G, ridges.shape[0], count // G)
        shift = xp.broadcast_to(2.0 * ridges[:, None], each)
        force = xp.broadcast_to(xp.reshape(2.0 * self.cross, (G, 1, -1, p)), (*each, p))
        W = self.operator.solver(xp.reshape(shift, (-1,)))(xp.reshape(force, (-1, p)))
        b = xp.reshape(self.y_mean, (G, 1, -1)) - xp.reshape(_against(W, self.x_mean), each)
        W = xp.moveaxis(xp.reshape(W, (*each, p)), 1, 0)
        return xp.reshape(W, (-1, count, p)), xp.reshape(xp.moveaxis(b, 1, 0), (-1, count))

    def intercept(self, W: Array) -> Array:
        """Let the model pass through the means."""
        return self.y_mean - _against(W, self.x_mean)

    def model(self, W: Array, at: Evaluation) -> Squares:
        """Return this: it is its own expansion to second order."""
        return self

    @property
    def model_error(self) -> float:
        """Zero: it is its own model."""
        return 0.0

    @property
    def is_exact(self) -> bool:
        """Whether there are no better models."""
        return True

    def exact(self) -> Squares:
        """Return this."""
        return self

    @property
    def mean_curvature(self) -> float:
        """Twice the mean variance of the features, which is the mean eigenvalue of the system, plus the ridge."""
        xp = array_namespace(self.ridge)
        found = self.operator.mean_eigenvalue if self.variances is None else 2.0 * float(xp.mean(self.variances))
        return found + 2.0 * float(xp.mean(self.ridge))

    def within(self, subspaces: Subspaces) -> Squares:
        """State the problems for cores: their moments are those of the projected samples."""
        gram = Gram(compressed(self.operator, subspaces))
        variances = 0.5 * array_namespace(gram.matrix).linalg.diagonal(gram.matrix)
        x_mean = subspaces.project(self.x_mean[None, :])[0, :]
        return replace(self, operator=gram, cross=subspaces.project(self.cross), x_mean=x_mean, variances=variances)

    def single(self) -> Squares:
        """Return the same problems in single precision, unless its range is too small for them: for choosing, not for answers."""
        xp = array_namespace(self.cross)
        sizes = [float(xp.sum(self.variances)), float(xp.max(self.target)), 1.0]  # type: ignore[arg-type]
        if not 1e-12 < min(sizes) <= max(sizes) < 1e12 or not isinstance(self.operator, Gram | InBasis):
            return self
        found = {"operator": self.operator.single()}
        for name in ("cross", "target", "ridge", "x_mean", "y_mean", "variances"):
            found[name] = as_dtype(getattr(self, name), xp.float32)
        return replace(self, **found)

    def take(self, problems: Array) -> Squares:
        """Keep some of the problems, or repeat them; groups must stay of equal length."""
        xp = array_namespace(self.cross)

        def pick(a: Array) -> Array:
            apart = xp.reshape(a, (self.n_problems, -1, *a.shape[1:]))
            return xp.reshape(xp.take(apart, problems, axis=0), (-1, *a.shape[1:]))

        return replace(
            self, cross=pick(self.cross), target=pick(self.target), ridge=self.ridge[problems], y_mean=pick(self.y_mean)
        )


@dataclass(frozen=True, eq=False)
class Modelled(Squares):
    """Squares whose operator is expensive to apply, and that know a cheap model of it which can be factored.

    ``rest`` bounds the largest eigenvalue of what the operator has more than its model. ``build`` makes the same problems with an
    operator that needs no model, where there is room for it.
    """

    known: Any = None
    rest: float = 0.0
    error: float = 1.0
    build: Callable[[], Squares] | None = None

    @classmethod
    def around(cls, squares: Squares, **known: Any) -> Modelled:
        """Add to squares what is known of a model of their operator."""
        own = {one.name: getattr(squares, one.name) for one in fields(Squares)}
        return cls(**(own | known))

    @property
    def solvers(self) -> Solvers:
        """Newton's method, with the model in place of the Hessian; for a path gradients."""
        return Solvers("newton", super().solvers.path)

    @property
    def model_error(self) -> float:
        """What the model is off by."""
        return self.error

    @property
    def is_exact(self) -> bool:
        """Whether there is nothing better than the model."""
        return self.build is None

    def exact(self) -> Squares:
        """State the same problems with their operator as a matrix."""
        return self if self.build is None else self.build()

    def model(self, W: Array, at: Evaluation) -> Squares:
        """Touch the squares at W, from above where what the model leaves out is known."""
        xp = array_namespace(W)
        W, ridge = xp.reshape(W, self.cross.shape), self.ridge + 0.5 * self.rest
        half = 0.5 * self.known.apply(W) + repeated(ridge, W.shape[0])[:, None] * W
        cross = half - 0.5 * at.gradient
        # A constant changes neither answer nor gap; this one keeps the model positive, as the dual of squares needs.
        constant = at.value + xp.sum(W * (half - at.gradient)) + 10.0 * self.at_zero.value
        nothing = xp.zeros_like(W[:, 0])
        target = (nothing + 1.0) * constant / W.shape[0]
        return Squares(self.known, cross, target, ridge, nothing, nothing)
