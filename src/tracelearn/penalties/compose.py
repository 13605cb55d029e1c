"""Tensor trace norms, each with its value, its dual norm and the steps that split it over the modes.

Conventions
-----------
A penalty acts on batches ``W`` of shape ``(B, I1, ..., IN)``; ``alpha`` and ``rho`` are arrays of shape ``(B,)``.
What an algorithm learns about the modes is a ``Split``: it is passed in and returned, never kept. A split comes in two
forms: ``parts`` are the tensors whose unfoldings were shrunk, ``duals`` the forces between them and ``W``. Where they
come from an optimum they prove it, so value and dual norm take them as evidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.arrays.linalg import mode_spans, mode_spectral_norms, mode_trace_norms, project_modes, shrink_modes

__all__ = [
    "PENALTIES",
    "LatentTraceNorm",
    "OverlappedTraceNorm",
    "Penalty",
    "ScaledLatentTraceNorm",
    "Split",
    "tensor_trace_norm",
]


@dataclass(frozen=True, eq=False)
class Split:
    """How a weight tensor is shared out over the modes.

    ``parts`` has shape (M, B, I1, ..., IN) with one part for each penalised mode, ``duals`` the same shape or, where
    all parts share one force, (1, B, I1, ..., IN). ``anchors`` are the parts before shrinkage, over-relaxed.
    """

    parts: Array
    duals: Array
    anchors: Array

    def take(self, index: Array) -> Split:
        """Keep some tensors of the batch."""
        xp = array_namespace(self.parts)
        return Split(*(xp.take(a, index, axis=1) for a in (self.parts, self.duals, self.anchors)))


class Penalty(Protocol):
    """What a solver asks of a penalty; plug-ins need no base class."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a weight tensor."""

    @property
    def terms(self) -> dict[int, float]:
        """The penalised modes and their weights, without repetition: a single term has a closed proximal point."""

    def value(self, W: Array, split: Split | None = None) -> Array:
        """Evaluate the norm (B,), from above where only a split makes it computable."""

    def dual_norm(self, G: Array, split: Split | None = None) -> Array:
        """Evaluate the dual norm (B,), from above; tight when the split comes from an optimum."""

    def start(self, W: Array) -> Split:
        """Make a first split of W."""

    def pull(self, split: Split, rho: Array) -> tuple[Array, Array]:
        """Return what ADMM adds to the right-hand side (B, ...) and to the diagonal (B,) of the update of W."""

    def push(self, split: Split, W: Array, alpha: Array, rho: Array, relax: float) -> Split:
        """Advance the split for a new W."""

    def residuals(self, before: Split, after: Split, W: Array, rho: Array) -> tuple[Array, Array]:
        """Measure how far W and its parts disagree, and how far the parts still move, both relative, (B,)."""

    def reflect(self, split: Split, P: Array, alpha: Array, curvature: float, step: float) -> tuple[Array, Split]:
        """Make a Douglas-Rachford step for ``curvature/2 |W - P|^2 + alpha norm(W)``; return point and state."""

    def tidy(self, W: Array, split: Split) -> Array:
        """Replace W by a tensor beside it that has exactly the ranks that the split implies."""


def tensor_trace_norm(W: Array, mode_weights: tuple[float, ...] | None = None) -> float:
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
    return float(OverlappedTraceNorm(tuple(W.shape), mode_weights).value(W[None, ...])[0])


def _column(x: Array, ndim: int) -> Array:
    """Give a (B,) array the trailing axes that let it multiply a (B, I1, ..., IN) batch."""
    return array_namespace(x).reshape(x, (-1, *(1,) * (ndim - 1)))


def _norms(T: Array) -> Array:
    """Frobenius norm of each tensor of the batch over all parts: (M, B, ...) -> (B,)."""
    xp = array_namespace(T)
    return xp.sqrt(xp.sum(T**2, axis=(0, *range(2, T.ndim))))


def _ratio(x: Array, y: Array) -> Array:
    """Divide; where y is zero there is nothing to compare with, and x alone would depend on the units."""
    xp = array_namespace(x)
    return xp.where(y > 0, x / xp.where(y > 0, y, xp.ones_like(y)), xp.zeros_like(x))


def _weights(given: tuple[float, ...] | None, default: tuple[float, ...]) -> tuple[float, ...]:
    weights = default if given is None else tuple(float(weight) for weight in given)
    if len(weights) != len(default):
        raise ValueError(f"Expected {len(default)} mode weights, one for each mode, got {len(weights)}.")
    if not all(math.isfinite(weight) and weight >= 0 for weight in weights) or not any(weights):
        raise ValueError(f"Expected mode weights that are finite, not negative and not all zero, got {weights}.")
    return weights


def _shrink_terms(parts: Array, level: Array, terms: dict[int, float]) -> Array:
    """Shrink every part in its own mode by ``level`` (B,) times its weight."""
    weights = list(terms.values())
    if len(set(weights)) == 1:
        return shrink_modes(parts, weights[0] * level[None, :], list(terms))
    thresholds = array_namespace(level).stack([weight * level for weight in weights])
    return shrink_modes(parts, thresholds, list(terms))


def _sum_of_norms(tensors: Sequence[Array], terms: dict[int, float]) -> Array:
    """Sum the trace norms of tensors, each in its own mode, times their weights."""
    norms = mode_trace_norms(tensors, list(terms))
    return sum(weight * norm for weight, norm in zip(terms.values(), norms, strict=True))


def _spectral_levels(tensors: Sequence[Array], terms: dict[int, float]) -> list[Array]:
    """Divide the spectral norms of tensors, each in its own mode, by their weights."""
    norms = mode_spectral_norms(tensors, list(terms))
    return [norm / weight for weight, norm in zip(terms.values(), norms, strict=True)]


def _each(parts: Array) -> list[Array]:
    return [parts[m, ...] for m in range(parts.shape[0])]


@dataclass(frozen=True)
class OverlappedTraceNorm:
    """The weighted sum of the trace norms of all unfoldings, ``sum_n theta_n |W_(n)|_*``: low rank in every mode.

    ``mode_weights`` are the theta; by default each is 1/N, which is the tensor trace norm of the paper (Eq. 2), at
    order 2 the matrix trace norm and at order 1 the length of a vector. A weight of zero leaves a mode free.
    """

    shape: tuple[int, ...]
    mode_weights: tuple[float, ...] | None = None

    @cached_property
    def weights(self) -> tuple[float, ...]:
        """The weight of each mode."""
        return _weights(self.mode_weights, (1.0 / len(self.shape),) * len(self.shape))

    @cached_property
    def terms(self) -> dict[int, float]:
        """The penalised modes and their weights; at order 2 both unfoldings have one trace norm, so one term."""
        if len(self.shape) == 2:
            return {0: sum(self.weights)}
        return {mode: weight for mode, weight in enumerate(self.weights) if weight > 0}

    def value(self, W: Array, split: Split | None = None) -> Array:
        """Evaluate the norm; the split is not needed."""
        return _sum_of_norms([W] * len(self.terms), self.terms)

    def dual_norm(self, G: Array, split: Split | None = None) -> Array:
        """Bound the smallest ``s`` for which G is a sum of parts with ``|V_n,(n)|_op <= s theta_n``.

        With a split, its duals are the parts, their rest spread evenly: tight at an optimum. Without one, G is shared
        out in proportion, which gives the harmonic mean of the spectral norms: 1.00 to 1.26 times the true value.
        """
        xp = array_namespace(G)
        if split is None:
            norms = mode_spectral_norms([G] * len(self.terms), list(self.terms))
            # So small that a norm below it is zero, so large that no weight divided by it overflows.
            tiny = float(xp.finfo(G.dtype).smallest_normal) * max(1.0, 4.0 * sum(self.terms.values()))
            pairs = zip(self.terms.values(), norms, strict=True)
            bound = 1.0 / sum(weight / xp.clip(norm, min=tiny) for weight, norm in pairs)
            return xp.where(norms[0] > 0, bound, xp.zeros_like(bound))  # of zero alone it is zero
        V = split.duals + (G - xp.sum(split.duals, axis=0))[None, ...] / len(self.terms)
        return xp.max(xp.stack(_spectral_levels(_each(V), self.terms)), axis=0)

    def start(self, W: Array) -> Split:
        """Copy W once for each mode, without forces."""
        xp = array_namespace(W)
        parts = xp.stack([W] * len(self.terms))
        return Split(parts, xp.zeros_like(parts), parts)

    def pull(self, split: Split, rho: Array) -> tuple[Array, Array]:
        """Consensus: every part pulls W towards itself."""
        xp = array_namespace(rho)
        pull = xp.sum(split.parts, axis=0) * _column(rho, split.parts.ndim - 1) - xp.sum(split.duals, axis=0)
        return pull, len(self.terms) * rho

    def push(self, split: Split, W: Array, alpha: Array, rho: Array, relax: float) -> Split:
        """Shrink ``W + V_n / rho`` in its own mode; what was cut off becomes the new force."""
        level = _column(rho, W.ndim)
        anchors = relax * W + (1.0 - relax) * split.parts + split.duals / level
        parts = _shrink_terms(anchors, alpha / rho, self.terms)
        return Split(parts, level * (anchors - parts), anchors)

    def residuals(self, before: Split, after: Split, W: Array, rho: Array) -> tuple[Array, Array]:
        """Compare W with its copies, and the copies with those before."""
        primal = _ratio(_norms(W - after.parts), _norms(after.parts))
        return primal, _ratio(rho * _norms(after.parts - before.parts), _norms(after.duals))

    def reflect(self, split: Split, P: Array, alpha: Array, curvature: float, step: float) -> tuple[Array, Split]:
        """Step in the product space of the paper's Eq. 16, with ``step = (N + 1) gamma``.

        ``anchors`` holds the N + 1 state variables. Erratum: the proximal map of the indicator averages them over
        0..N with 1/(N+1); the paper's sum starts at 1.
        """
        xp = array_namespace(P)
        state = split.anchors
        if state.shape[0] == len(self.terms):  # a split from elsewhere: the quadratic term joins as component 0
            state = xp.concat([P[None, ...], state])
        mean = xp.mean(state, axis=0)
        mirror = 2.0 * mean - state
        anchored = (curvature * P + mirror[0, ...] / step) / (curvature + 1.0 / step)  # Eq. 19
        parts = _shrink_terms(mirror[1:, ...], step * alpha, self.terms)  # Eq. 20
        duals = (mirror[1:, ...] - parts) / step
        state = state + xp.concat([anchored[None, ...], parts]) - mean  # Eq. 22 and 23
        return mean, Split(parts, duals, state)

    def tidy(self, W: Array, split: Split) -> Array:
        """Project every penalised mode on the subspace that its part spans."""
        modes = list(self.terms)
        return project_modes(W, mode_spans(_each(split.parts), modes), modes)


@dataclass(frozen=True)
class LatentTraceNorm:
    """The least ``sum_n theta_n |W_n,(n)|_*`` over all sums ``W_1 + ... + W_N = W``: low rank in *some* modes.

    By default each theta is 1, so that at order 2 this is the matrix trace norm too.
    """

    shape: tuple[int, ...]
    mode_weights: tuple[float, ...] | None = None

    @cached_property
    def weights(self) -> tuple[float, ...]:
        """The weight of each mode."""
        weights = _weights(self.mode_weights, (1.0,) * len(self.shape))
        if not all(weights):
            raise ValueError(
                f"Expected mode weights above zero for a latent norm, got {weights}: a free mode leaves no norm."
            )
        return tuple(weight * scale for weight, scale in zip(weights, self._scales, strict=True))

    @property
    def _scales(self) -> tuple[float, ...]:
        return (1.0,) * len(self.shape)

    @cached_property
    def terms(self) -> dict[int, float]:
        """The modes and their weights; at order 2 both unfoldings have one trace norm: the cheaper takes all."""
        if len(self.shape) == 2:
            return {0: min(self.weights)}
        return dict(enumerate(self.weights))

    def value(self, W: Array, split: Split | None = None) -> Array:
        """Bound the norm from above by the split, its rest spread evenly; without one, by the best single mode."""
        xp = array_namespace(W)
        norms = mode_trace_norms([W] * len(self.terms), list(self.terms))
        single = [weight * norm for weight, norm in zip(self.terms.values(), norms, strict=True)]
        best = xp.min(xp.stack(single), axis=0)
        if split is None:
            return best
        parts = split.parts + (W - xp.sum(split.parts, axis=0))[None, ...] / len(self.terms)
        return xp.minimum(best, _sum_of_norms(_each(parts), self.terms))

    def dual_norm(self, G: Array, split: Split | None = None) -> Array:
        """Evaluate ``max_n |G_(n)|_op / theta_n``, exactly."""
        xp = array_namespace(G)
        return xp.max(xp.stack(_spectral_levels([G] * len(self.terms), self.terms)), axis=0)

    def start(self, W: Array) -> Split:
        """Give every mode an equal part of W."""
        xp = array_namespace(W)
        parts = xp.stack([W / len(self.terms)] * len(self.terms))
        return Split(parts, xp.zeros_like(parts[:1, ...]), parts)

    def pull(self, split: Split, rho: Array) -> tuple[Array, Array]:
        """Sharing: the sum of the parts pulls W."""
        xp = array_namespace(rho)
        level = rho / len(self.terms)
        return xp.sum(split.anchors, axis=0) * _column(level, split.parts.ndim - 1) + split.duals[0, ...], level

    def push(self, split: Split, W: Array, alpha: Array, rho: Array, relax: float) -> Split:
        """Share the difference of W and the sum of the parts out evenly, then shrink every part in its own mode."""
        xp = array_namespace(W)
        level, count = _column(rho, W.ndim), len(self.terms)
        excess = (xp.sum(split.anchors, axis=0) - W)[None, ...] / count
        duals = split.duals + level * excess
        copies = split.anchors - excess
        parts = _shrink_terms(copies - duals / level, alpha / rho, self.terms)
        return Split(parts, duals, relax * parts + (1.0 - relax) * copies)

    def residuals(self, before: Split, after: Split, W: Array, rho: Array) -> tuple[Array, Array]:
        """Compare the parts with those that sum to W, and with those before."""
        xp, count = array_namespace(W), len(self.terms)
        copies = before.anchors - (xp.sum(before.anchors, axis=0) - W)[None, ...] / count
        primal = _ratio(_norms(copies - after.parts), _norms(after.parts))
        dual = rho * _norms(after.parts - before.parts)
        return primal, _ratio(dual, math.sqrt(count) * _norms(after.duals))

    def reflect(self, split: Split, P: Array, alpha: Array, curvature: float, step: float) -> tuple[Array, Split]:
        """Step on the parts themselves: one proximal map couples them through their sum, the other shrinks them."""
        xp = array_namespace(P)
        state, count = split.anchors, len(self.terms)
        stiffness = step * curvature
        force = stiffness / (1.0 + count * stiffness) * (P - xp.sum(state, axis=0))
        coupled = state + force[None, ...]
        parts = _shrink_terms(2.0 * coupled - state, step * alpha, self.terms)
        return xp.sum(coupled, axis=0), Split(parts, -force[None, ...] / step, state + parts - coupled)

    def tidy(self, W: Array, split: Split) -> Array:
        """Return the sum of the parts: each has exact low rank in its own mode, and all are zero where W is."""
        return array_namespace(W).sum(split.parts, axis=0)


@dataclass(frozen=True)
class ScaledLatentTraceNorm(LatentTraceNorm):
    """The latent norm with weights ``1 / sqrt(I_n)``, which do not favour the modes with few entries."""

    @property
    def _scales(self) -> tuple[float, ...]:
        return tuple(1.0 / math.sqrt(size) for size in self.shape)


PENALTIES: dict[str, Callable[..., Penalty]] = {
    "overlapped": OverlappedTraceNorm,
    "latent": LatentTraceNorm,
    "scaled_latent": ScaledLatentTraceNorm,
}
