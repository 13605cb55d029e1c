"""Penalties: norms of the weights, built from atoms.

An atom is a norm of one linear view of a weight tensor: the singular values of an unfolding, the entries, the fibres of a
mode. ``Overlap`` asks every term of the same W, ``Latent`` shares W out between its terms, ``Blocks`` gives each block of W
a penalty of its own. The steps of ADMM live in these three and in no atom.

Conventions
-----------
Penalties act on batches ``W`` of shape ``(B, I1, ..., IN)``; ``alpha`` and ``rho`` have shape ``(B,)``. What an algorithm
learns about the terms is a ``Split``, which is passed in and returned, never kept: at an optimum it proves the optimum, so
value and dual norm take it as evidence.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, ClassVar, Protocol, Self

from array_api_compat import device

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.arrays.linalg import (
    positive_part,
    project_columns,
    shrink,
    spectral_norms,
    trace_norms,
)
from tracelearn.errors import InputError, brief, check_name_is_free, refuse

__all__ = [
    "ATOMS",
    "L1",
    "PENALTIES",
    "Atom",
    "Blocks",
    "GroupL2",
    "Latent",
    "Nuclear",
    "Overlap",
    "Penalty",
    "Split",
    "as_penalty",
    "is_overlapped",
    "tensor_trace_norm",
]

ATOMS: dict[str, type[Atom]] = {}  # filled by the classes themselves
_NAMES_OF_SUMS = ("overlapped", "latent", "scaled_latent")


@dataclass(frozen=True, eq=False)
class Split:
    """How a weight tensor is shared out over the terms of a penalty.

    ``parts`` has shape (M, B, I1, ..., IN), one for each term; ``duals`` the same shape or, where all parts share one dual,
    (1, B, I1, ..., IN). ``anchors`` are where the next iteration goes on from: for an overlap what the parts are
    proximal points of, for a latent norm the parts, over-relaxed. ``Blocks`` holds tuples of these.
    """

    parts: Any
    duals: Any
    anchors: Any

    def map(self, function: Callable[..., Array], *others: Split) -> Split:
        """Apply a function to every array, and to the same array of other splits."""
        splits = (self, *others)

        def mapped(values: Sequence[Any]) -> Any:
            if isinstance(values[0], tuple):  # the blocks of each split
                return tuple(function(*arrays) for arrays in zip(*values, strict=True))
            return function(*values)

        return Split(
            parts=mapped([split.parts for split in splits]),
            duals=mapped([split.duals for split in splits]),
            anchors=mapped([split.anchors for split in splits]),
        )

    def take(self, index: Array) -> Split:
        """Keep some tensors of the batch."""
        return self.map(lambda a: array_namespace(a).take(a, index, axis=1))

    def joined(self, *others: Split) -> Split:
        """Put batches together."""
        return self.map(lambda *arrays: array_namespace(arrays[0]).concat(arrays, axis=1), *others)


class Penalty(Protocol):
    """What solvers and the certificate ask of a penalty."""

    def value(self, W: Array, split: Split | None = None) -> Array:
        """Evaluate the norm (B,), or where it has no closed form an upper bound, which the split makes tight."""

    def dual_norm(self, G: Array, split: Split | None = None, error: Any = 0.0) -> Array:
        """Evaluate the dual norm (B,), or an upper bound, which is tight when the split comes from an optimum.

        With an ``error`` (B,), bound that of all tensors within such a Euclidean distance of G.
        """

    def dual_length(self, shape: tuple[int, ...]) -> float:
        """Estimate the Euclidean length of the duals at an optimum with alpha = 1: ADMM chooses its first step by it."""

    @property
    def stiffness(self) -> float:
        """The ``rho`` that suits ADMM on ``1/2 |W - P|^2 + alpha norm(W)``."""

    def start(self, W: Array) -> Split:
        """Make a first split of W."""

    def pull(self, split: Split, rho: Array) -> Array:
        """Return what ADMM adds to the right-hand side of the update of W, whose diagonal grows by ``rho``."""

    def push(self, split: Split, W: Array, alpha: Array, rho: Array, relax: float) -> Split:
        """Update parts and duals after W, in ADMM: the proximal points, with over-relaxation ``relax``, and the dual ascent."""

    def residuals(self, before: Split, after: Split, W: Array, rho: Array) -> tuple[Array, Array]:
        """Measure how far W and its parts disagree, and how far the parts still move, both relative, (B,)."""

    def tidy(self, W: Array, split: Split) -> Array:
        """Replace W by a tensor near it that has exactly the ranks and zeros of the parts of the split."""

    def bound_to(self, shape: tuple[int, ...]) -> Self:
        """Check that the penalty fits weights of a shape, and simplify it for them."""

    @property
    def is_invariant(self) -> bool:
        """Whether weights in subspaces of the modes have the norm of their core: then only cores need be solved for."""

    def take(self, problems: Array) -> Self:
        """Keep the terms' weights of the problems of this index, where every problem has weights of its own."""


# --- atoms ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Atom:
    """A norm of one view of a weight tensor; a subclass is a new atom, offered everywhere by its name.

    ``view`` shows a batch (B, I1, ..., IN) as matrices (B, m, q), ``back`` undoes it. The others act on stacks of matrices
    (..., m, q): ``norms`` and ``dual_norms`` (...), ``prox`` with thresholds (...), and ``restrict`` gives
    matrices exactly the structure of others. Of the matrices of a mode they see nothing but the numbers: atoms that differ in
    their ``mode`` alone are evaluated together.

    Atoms are added and multiplied with weights: ``0.5 * Nuclear(0) + 0.5 * Nuclear(1) + 0.1 * L1()``.
    """

    name: ClassVar[str]
    # Whether a matrix and its transpose have the same norm: then the terms of both modes of a matrix are equal.
    is_transposable: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" in vars(cls):  # a subclass that only inherits a name must not take it over
            refuse(
                cls.name in _NAMES_OF_SUMS,
                f"Expected an atom with a name of its own, got {cls.name!r}, which is a sum of trace norms: choose another "
                f"name for {cls.__qualname__}.",
            )
            check_name_is_free(ATOMS, cls, "an atom")
            ATOMS[cls.name] = cls

    def view(self, T: Array) -> Array:
        """Show every tensor of a batch as a matrix; by default one row of all entries."""
        return array_namespace(T).reshape(T, (T.shape[0], 1, -1))

    def back(self, M: Array, shape: tuple[int, ...]) -> Array:
        """Undo ``view`` for a batch of a shape (B, I1, ..., IN)."""
        return array_namespace(M).reshape(M, shape)

    def norms(self, M: Array) -> Array:
        """Evaluate the norm of each matrix."""
        raise NotImplementedError

    def dual_norms(self, M: Array) -> Array:
        """Evaluate the dual norm of each matrix, which is never above its Euclidean length."""
        raise NotImplementedError

    def prox(self, M: Array, threshold: Array) -> Array:
        """Find the proximal point of ``threshold`` times the norm."""
        raise NotImplementedError

    def restrict(self, M: Array, like: Array) -> Array:
        """Give matrices the ranks or zeros of others; by default the zeros."""
        return M * array_namespace(M).astype(like != 0, M.dtype)

    def __rmul__(self, weight: float) -> Overlap:
        return Overlap(((float(weight), self),))

    def __add__(self, other: Atom | Overlap) -> Overlap:
        return 1.0 * self + other


@dataclass(frozen=True)
class Nuclear(Atom):
    """The trace norm of the unfolding of one mode, the sum of its singular values: low rank in that mode.

    Examples
    --------
    >>> from tracelearn import Nuclear
    >>> 0.5 * Nuclear(0) + 0.5 * Nuclear(1)
    Overlap(terms=((0.5, Nuclear(mode=0)), (0.5, Nuclear(mode=1))))
    """

    name: ClassVar[str] = "nuclear"
    is_transposable: ClassVar[bool] = True
    mode: int = 0

    def view(self, T: Array) -> Array:
        """Unfold, short side first: singular values depend neither on the order of columns nor on what is called a row."""
        xp = array_namespace(T)
        batch, *shape = T.shape
        size = shape[self.mode]
        before = math.prod(shape[: self.mode])
        after = math.prod(shape[self.mode + 1 :])
        M = xp.permute_dims(xp.reshape(T, (batch, before, size, after)), (0, 2, 1, 3))
        M = xp.reshape(M, (batch, size, before * after))
        return xp.matrix_transpose(M) if size > before * after else M

    def back(self, M: Array, shape: tuple[int, ...]) -> Array:
        """Fold back."""
        xp = array_namespace(M)
        batch, *sizes = shape
        size = sizes[self.mode]
        before = math.prod(sizes[: self.mode])
        after = math.prod(sizes[self.mode + 1 :])
        M = xp.matrix_transpose(M) if size > before * after else M
        return xp.reshape(xp.permute_dims(xp.reshape(M, (batch, size, before, after)), (0, 2, 1, 3)), shape)

    def norms(self, M: Array) -> Array:
        """Sum the singular values."""
        return trace_norms(M)

    def dual_norms(self, M: Array) -> Array:
        """Find the largest singular value."""
        return spectral_norms(M)

    def prox(self, M: Array, threshold: Array) -> Array:
        """Shrink the singular values."""
        return shrink(M, threshold)

    def restrict(self, M: Array, like: Array) -> Array:
        """Project on the columns of others, which gives their ranks."""
        return project_columns(M, like)


@dataclass(frozen=True)
class L1(Atom):
    """The sum of the absolute values of all entries: few entries that are not zero.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn import L1, TraceNormRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 4, 3))
    >>> model = TraceNormRegressor(alpha=0.5, penalty=L1()).fit(X, X[:, 1, 2])
    >>> int(np.sum(model.coef_ != 0))
    1
    """

    name: ClassVar[str] = "l1"

    def norms(self, M: Array) -> Array:
        """Sum absolute values."""
        xp = array_namespace(M)
        return xp.sum(xp.abs(M), axis=(-2, -1))

    def dual_norms(self, M: Array) -> Array:
        """Find the largest absolute value."""
        xp = array_namespace(M)
        return xp.max(xp.abs(M), axis=(-2, -1))

    def prox(self, M: Array, threshold: Array) -> Array:
        """Move every entry towards zero."""
        xp = array_namespace(M)
        return xp.sign(M) * positive_part(xp.abs(M) - threshold[..., None, None])


@dataclass(frozen=True)
class GroupL2(Atom):
    """The sum of the lengths of the slices of one mode: whole channels, times or frequencies that are zero.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn import GroupL2, TraceNormRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 4, 3))
    >>> model = TraceNormRegressor(alpha=0.5, penalty=GroupL2(0)).fit(X, X[:, 1].sum(axis=1))
    >>> np.flatnonzero(np.any(model.coef_ != 0, axis=1))
    array([1])
    """

    name: ClassVar[str] = "group_l2"
    mode: int = 0

    def view(self, T: Array) -> Array:
        """Show every slice as a row."""
        xp = array_namespace(T)
        axis = self.mode % (T.ndim - 1) + 1
        return xp.reshape(xp.moveaxis(T, axis, 1), (T.shape[0], T.shape[axis], -1))

    def back(self, M: Array, shape: tuple[int, ...]) -> Array:
        """Put the slices back."""
        xp = array_namespace(M)
        axis = self.mode % (len(shape) - 1) + 1
        others = shape[1:axis] + shape[axis + 1 :]
        return xp.moveaxis(xp.reshape(M, (shape[0], shape[axis], *others)), 1, axis)

    def _lengths(self, M: Array) -> Array:
        """Find the Euclidean length of every row."""
        xp = array_namespace(M)
        return xp.sqrt(xp.sum(M**2, axis=-1))

    def norms(self, M: Array) -> Array:
        """Sum the lengths of the rows."""
        return array_namespace(M).sum(self._lengths(M), axis=-1)

    def dual_norms(self, M: Array) -> Array:
        """Find the longest row."""
        return array_namespace(M).max(self._lengths(M), axis=-1)

    def prox(self, M: Array, threshold: Array) -> Array:
        """Shorten every row."""
        xp = array_namespace(M)
        lengths = self._lengths(M)
        shortened = positive_part(lengths - threshold[..., None])
        return M * (shortened / xp.where(shortened > 0, lengths, xp.ones_like(lengths)))[..., None]


# --- sums of terms ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Terms:
    """Atoms with their weights: numbers, or in the overlaps of a search arrays (B,), one weight for each problem."""

    terms: tuple[tuple[Any, Atom], ...]
    _merge: ClassVar[Any] = operator.add  # makes one weight of those of equal terms

    def _weights(self, like: Array) -> Array:
        """Return the weight of every term in every problem, (M, B), as numbers like those of a batch (B, ...)."""
        xp = array_namespace(like)
        zeros = xp.zeros(like.shape[0], dtype=like.dtype, device=device(like))
        return xp.stack([zeros + weight for weight, _ in self.terms])

    def _norms(self, T: Array) -> Array:
        """Evaluate every atom at its own tensor of T (M, B, ...), or all of them at that of T (1, B, ...): (M, B)."""
        return self._for_each_atom(T, lambda atom, views, terms: atom.norms(views))

    def _dual_norms(self, T: Array) -> Array:
        """Evaluate every dual norm at its own tensor of T (M, B, ...), or all of them at that of T (1, B, ...): (M, B)."""
        return self._for_each_atom(T, lambda atom, views, terms: atom.dual_norms(views))

    def _prox(self, T: Array, level: Array) -> Array:
        """Find the proximal point of every atom at its own tensor of T (M, B, ...), with threshold ``level`` times weight."""
        xp = array_namespace(T)
        weights = self._weights(T[0, ...])
        shape = tuple(T.shape[1:])

        def proximal_points(atom: Atom, views: Array, terms: list[int]) -> list[Array]:
            thresholds = xp.stack([weights[m, :] * level for m in terms])
            points = atom.prox(views, thresholds)
            return [self.terms[m][1].back(points[i, ...], shape) for i, m in enumerate(terms)]

        return self._for_each_atom(T, proximal_points)

    def _for_each_atom(self, T: Array, evaluate: Callable[[Atom, Array, list[int]], Any]) -> Array:
        """Evaluate a function of an atom, of the stacked views of terms (M', B, m, q), and of which terms these are.

        Atoms that differ in their mode alone, and see matrices of one size, are evaluated in one call: a small decomposition is
        mostly overhead, on a GPU about a millisecond of it. For a cube all modes are one call.
        """
        xp = array_namespace(T)
        views: list[Array] = []
        groups: dict[Any, list[int]] = {}
        for m, (_, atom) in enumerate(self.terms):
            views.append(atom.view(T[m if T.shape[0] > 1 else 0, ...]))
            kind = type(atom) if vars(atom).keys() == {"mode"} else atom
            groups.setdefault((kind, tuple(views[m].shape)), []).append(m)
        result_of_term: dict[int, Array] = {}
        for terms in groups.values():
            # Stacking one matrix costs as much as unfolding it.
            stack = views[terms[0]][None, ...] if len(terms) == 1 else xp.stack([views[m] for m in terms])
            results = evaluate(self.terms[terms[0]][1], stack, terms)
            for i, m in enumerate(terms):
                result_of_term[m] = results[i] if isinstance(results, list) else results[i, ...]
        return xp.stack([result_of_term[m] for m in range(len(self.terms))])

    def bound_to(self, shape: tuple[int, ...]) -> Self:
        """Check modes and weights, drop terms of weight zero, and merge equal ones: one term has a closed proximal point."""
        weight_of: dict[Atom, Any] = {}
        for weight, atom in self.terms:
            if not (isinstance(weight, Real) and math.isfinite(weight) and float(weight) >= 0):
                raise ValueError(
                    f"Expected weights of a penalty that are finite and not negative, got {brief(weight)}."
                )
            bound: Any = atom
            if hasattr(bound, "mode"):
                if not (isinstance(bound.mode, Integral) and -len(shape) <= int(bound.mode) < len(shape)):
                    raise ValueError(
                        f"Expected terms that fit weights of shape {shape}, got {brief(atom)}: modes are counted from 0."
                    )
                bound = replace(bound, mode=0 if len(shape) == 2 and atom.is_transposable else bound.mode % len(shape))
            if weight:
                weight_of[bound] = self._merge(weight_of[bound], weight) if bound in weight_of else weight
        if not weight_of:
            raise ValueError("Expected a penalty with some weight above zero, got none: use alpha=0 for no penalty.")
        return replace(self, terms=tuple((float(weight), atom) for atom, weight in weight_of.items()))

    def dual_length(self, shape: tuple[int, ...]) -> float:
        """Sum over terms the weight times the largest length of a dual of dual norm one.

        That is the root of the number of slices of the atom's mode (as many singular values can be one), or of all entries.
        """
        total = 0.0
        for weight, atom in self.terms:
            if not isinstance(weight, float | int):  # every problem of a search has its own
                return math.sqrt(max(shape))
            total += weight * math.sqrt(shape[atom.mode] if hasattr(atom, "mode") else math.prod(shape))
        return total

    def residuals(self, before: Split, after: Split, W: Array, rho: Array) -> tuple[Array, Array]:
        """Compare W with its parts, and the parts with those before, of which each has an equal share of ``rho``."""
        disagreement = _relative_length(W - after.parts, after.parts)
        motion = _relative_length(after.parts - before.parts, after.duals)
        return disagreement, rho / len(self.terms) * motion

    @property
    def is_invariant(self) -> bool:
        """Whether all terms are trace norms: these are the same for a tensor and its core."""
        return all(type(atom) is Nuclear for _, atom in self.terms)

    def take(self, problems: Array) -> Self:
        """Keep the weights of the problems of this index; a weight that is a number is that of all problems."""
        terms = [(w if isinstance(w, float | int) else w[problems], atom) for w, atom in self.terms]
        return replace(self, terms=tuple(terms))

    def __add__(self, other: Atom | Self) -> Self:
        if isinstance(other, Atom):
            return replace(self, terms=(*self.terms, (1.0, other)))
        if not isinstance(other, _Terms):
            return NotImplemented
        if type(other) is not type(self):
            raise InputError(
                f"Expected terms that are all overlapping or all latent, got a sum of {type(self).__name__} and "
                f"{type(other).__name__}: write the terms of both into one of these."
            )
        return replace(self, terms=self.terms + other.terms)

    def __rmul__(self, weight: float) -> Self:
        return replace(self, terms=tuple((float(weight) * w, atom) for w, atom in self.terms))


def _relative_length(change: Array, size: Array) -> Array:
    """Compare the lengths of changes (M, B, ...) with those of sizes, over all terms: (B,)."""
    xp = array_namespace(change)
    axes = (0, *range(2, change.ndim))
    change_length = xp.sqrt(xp.sum(change**2, axis=axes))
    length = xp.sqrt(xp.sum(size**2, axis=axes))
    # Where there is no size there is nothing to compare with, and the change alone would depend on the units.
    ratio = change_length / xp.where(length > 0, length, xp.ones_like(length))
    return xp.where(length > 0, ratio, xp.zeros_like(ratio))


@dataclass(frozen=True)
class Overlap(_Terms):
    """The sum of weighted norms of the same W, ``sum_m theta_m |W|_m``: every term's structure at once."""

    def value(self, W: Array, split: Split | None = None) -> Array:
        """Evaluate the norm; the split is not needed."""
        xp = array_namespace(W)
        return xp.sum(self._weights(W) * self._norms(W[None, ...]), axis=0)

    def dual_norm(self, G: Array, split: Split | None = None, error: Any = 0.0) -> Array:
        """Bound the smallest ``s`` for which G is a sum of parts whose dual norms are at most ``s theta_m``.

        With a split, its duals are the parts, their rest spread evenly: tight at an optimum. Without one, G is shared out in
        proportion, which gives the harmonic mean of the dual norms: 1.00 to 1.26 times the true value. All of the error goes
        to the term with the largest weight: no dual norm of an atom exceeds the length.
        """
        xp = array_namespace(G)
        weights = self._weights(G)
        slack = error / xp.max(weights, axis=0)
        if split is None:
            norms = self._dual_norms(G[None, ...])
            # So small that a norm below it is zero, so large that no weight divided by it overflows.
            tiny = float(xp.finfo(G.dtype).smallest_normal) * 4.0 * (1.0 + xp.max(weights) * len(self.terms))
            bound = 1.0 / xp.sum(weights / xp.maximum(norms, tiny), axis=0)
            return slack + xp.where(norms[0, ...] > 0, bound, xp.zeros_like(bound))  # zero for G = 0
        active = xp.astype(weights > 0, G.dtype)  # a term without weight takes no part: its dual is exactly zero
        shares = xp.reshape(active / xp.sum(active, axis=0), (*weights.shape, *(1,) * (G.ndim - 1)))
        norms = self._dual_norms(split.duals + shares * (G - xp.sum(split.duals, axis=0)))
        return slack + xp.max(norms / xp.where(weights > 0, weights, norms + 1.0), axis=0)

    @property
    def stiffness(self) -> float:
        """One: measured on many sums, half of it or twice as much takes twice the iterations."""
        return 1.0

    def start(self, W: Array) -> Split:
        """Copy W once for each term, with duals of zero."""
        xp = array_namespace(W)
        parts = xp.stack([W] * len(self.terms))
        return Split(parts, xp.zeros_like(parts), parts)

    def pull(self, split: Split, rho: Array) -> Array:
        """Pull W to every part, with an equal share of ``rho`` (ADMM in its consensus form)."""
        xp = array_namespace(rho)
        level = xp.reshape(rho / len(self.terms), (-1, *(1,) * (split.parts.ndim - 2)))
        return xp.sum(split.parts, axis=0) * level - xp.sum(split.duals, axis=0)

    def push(self, split: Split, W: Array, alpha: Array, rho: Array, relax: float) -> Split:
        """Take the proximal point of ``W + V_m / rho`` for each term; what shrinking removes is the new dual."""
        rho = rho / len(self.terms)
        level = array_namespace(rho).reshape(rho, (-1, *(1,) * (W.ndim - 1)))
        # In place: for a large batch fresh memory costs as much as the arithmetic.
        anchors = split.duals / level
        anchors += (1.0 - relax) * split.parts
        anchors += relax * W
        parts = self._prox(anchors, alpha / rho)
        duals = anchors - parts
        duals *= level
        return Split(parts, duals, anchors)

    def tidy(self, W: Array, split: Split) -> Array:
        """Give W the structure of each part, term after term."""
        for m, (_, atom) in enumerate(self.terms):
            W = atom.back(atom.restrict(atom.view(W), atom.view(split.parts[m, ...])), tuple(W.shape))
        return W


@dataclass(frozen=True)
class Latent(_Terms):
    """The least ``sum_m theta_m |W_m|_m`` over all tensors W_m that add up to W: the structure of *some* terms."""

    _merge: ClassVar[Any] = min  # of equal terms the cheapest takes all

    def bound_to(self, shape: tuple[int, ...]) -> Latent:
        """Check modes and weights, and merge equal terms."""
        if any(isinstance(weight, Real) and weight == 0 for weight, _ in self.terms):
            raise ValueError("Expected weights above zero in a latent norm, got a zero: a free term leaves no norm.")
        return super().bound_to(shape)

    def value(self, W: Array, split: Split | None = None) -> Array:
        """Bound the norm from above by the split, its rest spread evenly; without one, by the best single term."""
        xp = array_namespace(W)
        weights = self._weights(W)
        best = xp.min(weights * self._norms(W[None, ...]), axis=0)
        if split is None:
            return best
        remainder = (W - xp.sum(split.parts, axis=0)) / len(self.terms)
        return xp.minimum(best, xp.sum(weights * self._norms(split.parts + remainder), axis=0))

    def dual_norm(self, G: Array, split: Split | None = None, error: Any = 0.0) -> Array:
        """Evaluate the largest dual norm divided by its weight, which is exact; the error counts with the smallest weight."""
        xp = array_namespace(G)
        weights = self._weights(G)
        norms = self._dual_norms(G[None, ...])
        return xp.max(norms / weights, axis=0) + error / xp.min(weights, axis=0)

    def dual_length(self, shape: tuple[int, ...]) -> float:
        """Average the lengths of the terms, and divide by their number again: W takes the step of one part, not of all."""
        return super().dual_length(shape) / len(self.terms) ** 2

    @property
    def stiffness(self) -> float:
        """The share of one part: that of an overlap takes three to six times the iterations."""
        return 1.0 / len(self.terms)

    def start(self, W: Array) -> Split:
        """Give every term an equal part of W."""
        xp = array_namespace(W)
        parts = xp.stack([W / len(self.terms)] * len(self.terms))
        return Split(parts, xp.zeros_like(parts[:1, ...]), parts)

    def pull(self, split: Split, rho: Array) -> Array:
        """Pull W to the sum of the parts (ADMM in its sharing form)."""
        xp = array_namespace(rho)
        level = xp.reshape(rho, (-1, *(1,) * (split.parts.ndim - 2)))
        return xp.sum(split.anchors, axis=0) * level + split.duals[0, ...]

    def push(self, split: Split, W: Array, alpha: Array, rho: Array, relax: float) -> Split:
        """Share the difference of W and the sum of the parts out evenly, then take each part's proximal point."""
        xp = array_namespace(W)
        count = len(self.terms)
        rho = rho * count
        level = xp.reshape(rho, (-1, *(1,) * (W.ndim - 1)))
        excess = (xp.sum(split.anchors, axis=0) - W)[None, ...] / count
        duals = split.duals + level * excess
        copies = split.anchors - excess
        parts = self._prox(copies - duals / level, alpha / rho)
        return Split(parts, duals, relax * parts + (1.0 - relax) * copies)

    def residuals(self, before: Split, after: Split, W: Array, rho: Array) -> tuple[Array, Array]:
        """Compare the parts with those that sum to W, and with those before."""
        count = len(self.terms)
        copies = before.anchors - (array_namespace(W).sum(before.anchors, axis=0) - W)[None, ...] / count
        # Every part has the step count * rho. Of the equal duals of all parts one is kept, which is shorter by sqrt(count).
        # The base class divides by count.
        return super().residuals(before, after, copies, count**1.5 * rho)

    def tidy(self, W: Array, split: Split) -> Array:
        """Return the sum of the parts: each has exact structure, and all are zero where W is."""
        return array_namespace(W).sum(split.parts, axis=0)


@dataclass(frozen=True)
class Blocks:
    """A penalty for each block of W, which comes flat, (B, p): the views of a sample, each with a norm of its own."""

    shapes: tuple[tuple[int, ...], ...]
    penalties: tuple[Overlap | Latent, ...]

    def bound_to(self, shape: tuple[int, ...]) -> Blocks:
        """Check the sizes, and bind each block's penalty to its shape."""
        if sum(math.prod(block) for block in self.shapes) != math.prod(shape):
            raise ValueError(f"Expected blocks of {math.prod(shape)} weights in all, got shapes {self.shapes}.")
        pairs = zip(self.penalties, self.shapes, strict=True)
        return Blocks(self.shapes, tuple(penalty.bound_to(block) for penalty, block in pairs))

    def blocks(self, W: Array) -> list[Array]:
        """Cut a batch (B, p) into the tensors of its blocks."""
        xp = array_namespace(W)
        blocks = []
        first = 0
        flat = xp.reshape(W, (W.shape[0], -1))
        for shape in self.shapes:
            size = math.prod(shape)
            blocks.append(xp.reshape(flat[:, first : first + size], (-1, *shape)))
            first += size
        return blocks

    def _joined(self, blocks: Sequence[Array]) -> Array:
        """Lay blocks side by side, flat."""
        xp = array_namespace(blocks[0])
        return xp.concat([xp.reshape(block, (block.shape[0], -1)) for block in blocks], axis=1)

    def _splits_of_blocks(self, split: Split | None) -> list[Split | None]:
        """List the splits of the blocks."""
        if split is None:
            return [None] * len(self.penalties)
        return [
            Split(parts, duals, anchors)
            for parts, duals, anchors in zip(split.parts, split.duals, split.anchors, strict=True)
        ]

    def _joined_splits(self, splits: Sequence[Split]) -> Split:
        """Hold the splits of the blocks as one."""
        return Split(
            parts=tuple(split.parts for split in splits),
            duals=tuple(split.duals for split in splits),
            anchors=tuple(split.anchors for split in splits),
        )

    def _with_blocks(self, W: Array, split: Split | None = None) -> Iterator[tuple[Any, Array, Any]]:
        """Go through the blocks: the penalty of each, its tensors and its split."""
        return zip(self.penalties, self.blocks(W), self._splits_of_blocks(split), strict=True)

    def value(self, W: Array, split: Split | None = None) -> Array:
        """Sum over the blocks."""
        return sum(penalty.value(block, block_split) for penalty, block, block_split in self._with_blocks(W, split))

    def dual_norm(self, G: Array, split: Split | None = None, error: Any = 0.0) -> Array:
        """Take the largest over the blocks; all of the error may be in any of them."""
        xp = array_namespace(G)
        norms = [
            penalty.dual_norm(block, block_split, error) for penalty, block, block_split in self._with_blocks(G, split)
        ]
        return xp.max(xp.stack(norms), axis=0)

    def dual_length(self, shape: tuple[int, ...]) -> float:
        """Take 0.35 of the length of the duals of all blocks: with all of it ADMM took half as many iterations more."""
        lengths = [penalty.dual_length(block) for penalty, block in zip(self.penalties, self.shapes, strict=True)]
        return 0.35 * math.hypot(*lengths)

    @property
    def stiffness(self) -> float:
        """The largest of the blocks."""
        return max(penalty.stiffness for penalty in self.penalties)

    def start(self, W: Array) -> Split:
        """Start every block."""
        return self._joined_splits([penalty.start(block) for penalty, block, _ in self._with_blocks(W)])

    def pull(self, split: Split, rho: Array) -> Array:
        """Pull every block."""
        pairs: Any = zip(self.penalties, self._splits_of_blocks(split), strict=True)
        return self._joined([penalty.pull(block_split, rho) for penalty, block_split in pairs])

    def push(self, split: Split, W: Array, alpha: Array, rho: Array, relax: float) -> Split:
        """Update parts and duals of every block."""
        blocks = self._with_blocks(W, split)
        return self._joined_splits(
            [penalty.push(block_split, block, alpha, rho, relax) for penalty, block, block_split in blocks]
        )

    def residuals(self, before: Split, after: Split, W: Array, rho: Array) -> tuple[Array, Array]:
        """Take the largest over the blocks."""
        xp = array_namespace(W)
        disagreements = []
        motions = []
        for (penalty, block, block_split), split_before in zip(
            self._with_blocks(W, after), self._splits_of_blocks(before), strict=True
        ):
            disagreement, motion = penalty.residuals(split_before, block_split, block, rho)
            disagreements.append(disagreement)
            motions.append(motion)
        return xp.max(xp.stack(disagreements), axis=0), xp.max(xp.stack(motions), axis=0)

    def tidy(self, W: Array, split: Split) -> Array:
        """Tidy every block."""
        tidied = [penalty.tidy(block, block_split) for penalty, block, block_split in self._with_blocks(W, split)]
        return array_namespace(W).reshape(self._joined(tidied), W.shape)

    @property
    def is_invariant(self) -> bool:
        """False: blocks lie side by side in flat weights, which have no modes."""
        return False

    def take(self, problems: Array) -> Blocks:
        """Keep some problems."""
        return replace(self, penalties=tuple(penalty.take(problems) for penalty in self.penalties))


# --- what users type --------------------------------------------------------------------------------------------------


# Sums of the trace norms of all modes: which, and whether a weight is divided by the root of the size of its mode.
PENALTIES: dict[str, tuple[type[Overlap | Latent], bool]] = {
    "overlapped": (Overlap, False),
    "latent": (Latent, False),
    "scaled_latent": (Latent, True),
}


def is_overlapped(penalty: Any) -> bool:
    """Tell whether a penalty was named as the overlapped trace norm: then a search may choose its mode weights."""
    return isinstance(penalty, str) and penalty in PENALTIES and PENALTIES[penalty][0] is Overlap


def as_penalty(penalty: Any, shape: tuple[int, ...], mode_weights: Sequence[float] | None = None) -> Any:
    """Make a penalty for weights of a shape from its name, from an atom, or from a sum of terms.

    "overlapped" is the sum of the trace norms of all unfoldings, each by default with weight 1/N (the paper's Eq. 2): low rank in
    every mode. At order 2 it is the matrix trace norm, at order 1 the length of a vector; a weight of zero leaves a mode free.
    "latent" shares W out between the modes: a sum of tensors, each of low rank in one mode, by default each with weight 1.
    "scaled_latent" divides these weights by the root of the size of the mode, which does not favour the modes with few entries.

    Examples
    --------
    >>> from tracelearn.penalties import L1, Nuclear, as_penalty
    >>> as_penalty("latent", (3, 4, 5)).terms
    ((1.0, Nuclear(mode=0)), (1.0, Nuclear(mode=1)), (1.0, Nuclear(mode=2)))
    >>> as_penalty(0.5 * Nuclear(0) + 0.5 * Nuclear(1) + 0.1 * L1(), (3, 4)).terms
    ((1.0, Nuclear(mode=0)), (0.1, L1()))
    """
    if isinstance(penalty, str) and penalty in PENALTIES:
        kind, is_scaled = PENALTIES[penalty]
        weights = _read_mode_weights(mode_weights, kind, shape)
        terms = []
        for mode, (weight, size) in enumerate(zip(weights, shape, strict=True)):
            terms.append((weight / math.sqrt(size) if is_scaled else weight, Nuclear(mode)))
        return kind(tuple(terms)).bound_to(shape)
    if mode_weights is not None:
        raise ValueError(
            f"Expected mode_weights=None with penalty={brief(penalty)}, got {brief(mode_weights)}: weigh the terms themselves."
        )
    total = ATOMS[penalty]() if isinstance(penalty, str) and penalty in ATOMS else penalty
    total = 1.0 * total if isinstance(total, Atom) else total
    if isinstance(total, type) or not hasattr(total, "bound_to"):
        names = ", ".join(repr(name) for name in (*PENALTIES, *ATOMS))
        raise ValueError(
            f"Expected a penalty among {names}, or a sum of atoms, got {brief(penalty)}: choose one of these."
        )
    return total.bound_to(shape)


def _read_mode_weights(
    mode_weights: Sequence[float] | None, kind: type[Overlap | Latent], shape: tuple[int, ...]
) -> list[float]:
    """Check the weights of the modes of a sum of trace norms; by default they are equal."""
    order = len(shape)
    if mode_weights is None:
        return [1.0 / order if kind is Overlap else 1.0] * order
    try:
        weights = [float(weight) for weight in mode_weights]
    except (TypeError, ValueError):
        raise InputError(
            f"Expected mode_weights to be a sequence of numbers, got {brief(mode_weights)}: give one for each mode."
        ) from None
    if len(weights) != order:
        raise ValueError(
            f"Expected {order} mode weights for weights of shape {shape}, got {len(weights)}: give one for each mode."
        )
    return weights


def tensor_trace_norm(W: Array, mode_weights: Sequence[float] | None = None) -> float:
    """Average the trace norms of the unfoldings of one tensor (the paper's Eq. 2).

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn import tensor_trace_norm
    >>> round(tensor_trace_norm(np.diag([3.0, 4.0])), 12)  # order 2: the matrix trace norm
    7.0
    >>> round(tensor_trace_norm(np.array([3.0, 4.0])), 12)  # order 1: the length of a vector
    5.0
    """
    return float(as_penalty("overlapped", tuple(W.shape), mode_weights).value(W[None, ...])[0])
