"""The three forms in which a problem is kept: moments, a basis of what the samples span, or the samples.

A form is chosen once, from the number n of samples, their p entries and the memory; it then builds the data fit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from tracelearn.arrays.array_api import Array, free_memory, is_sparse
from tracelearn.arrays.span import span
from tracelearn.losses import Loss
from tracelearn.problems.sample_loss import SampleLoss
from tracelearn.problems.sparse_operators import LARGEST_DENSE
from tracelearn.problems.squares import Squares, squares_of_samples
from tracelearn.samples.samples import Samples

__all__ = ["BasisForm", "Form", "MomentsForm", "SamplesForm", "choose_form"]

_SMALL_MATRIX = 64 << 20  # bytes of a square matrix that fits anywhere; for larger ones the free memory is asked for
_UNKNOWN = 1 << 62  # samples, or bytes, of which nothing is known


class Form(Protocol):
    """How a problem is kept, and why."""

    @property
    def reason(self) -> str:
        """Why this form suits, in one sentence."""

    @property
    def uses_moments(self) -> bool:
        """Whether the moments of the samples hold all that the data fit needs."""

    def prepared(self, samples: Samples) -> Samples:
        """Return samples as this form reads them, checked for NaN and infinity unless the moments will show these."""

    def data_fit(
        self,
        samples: Samples,
        loss: Loss,
        *,
        ridge: float,
        joint: bool,
        fit_intercept: bool,
        spectral: bool = False,
    ) -> Squares | SampleLoss:
        """Build the data fit: one problem for each target where the loss is separable, unless ``joint``.

        With ``spectral`` matrices are decomposed once, where many values of alpha and ridge are to be solved for.
        """


@dataclass(frozen=True)
class MomentsForm:
    """The p by p moments of a loss that needs no more."""

    reason: str = "moments hold all that the samples say about a linear model"
    uses_moments = True

    def prepared(self, samples: Samples) -> Samples:
        """Return the samples as they are: NaN and infinity show in their moments."""
        return samples

    def data_fit(
        self, samples: Samples, loss: Loss, *, ridge: float, joint: bool, fit_intercept: bool, spectral: bool = False
    ) -> Squares:
        """Sum up the moments, and state the data fit from them."""
        moments = samples.moments()
        return Squares.of(
            moments if fit_intercept else moments.uncentred(), ridge=ridge, joint=joint, spectral=spectral
        )


@dataclass(frozen=True)
class BasisForm:
    """The moments of coordinates in what the samples span, which are fewer than their entries."""

    reason: str = "all products are taken in what the samples span"
    uses_moments = False

    def prepared(self, samples: Samples) -> Samples:
        """Check every number for NaN and infinity, and cast the rows to the precision of the solvers."""
        return samples.checked()

    def data_fit(
        self, samples: Samples, loss: Loss, *, ridge: float, joint: bool, fit_intercept: bool, spectral: bool = False
    ) -> Squares:
        """Find a basis of the samples and the moments of their coordinates in it; return the data fit of all p features."""
        samples = self.prepared(samples)
        origin = _origin(samples, fit_intercept=fit_intercept)
        basis, coordinates = span(samples.rows, origin)
        fit = MomentsForm().data_fit(
            samples.with_rows(coordinates, (coordinates.shape[1],)),
            loss,
            ridge=ridge,
            joint=joint,
            fit_intercept=fit_intercept,
            spectral=spectral,
        )

        def variances_of(X: Array, Y: Array, share: Array, z: Array) -> Array:
            squares = X - origin
            squares *= squares  # in place: samples may take much of the memory
            return share @ squares

        variances = samples.total(variances_of)
        return fit.lifted(basis, origin, variances)


def _origin(samples: Samples, *, fit_intercept: bool) -> Array:
    """Find what is subtracted from samples in memory, (p,): their mean, or zero without an intercept.

    The mean is summed from differences to the first sample, so that it is exact for a constant feature: with a rounded mean its
    deviations would not be zero, and would look like a direction in which samples differ.
    """
    (block,) = samples.blocks
    first = block.X[0, :]
    return first + (block.weight / samples.weight) @ (block.X - first) if fit_intercept else 0.0 * first


@dataclass(frozen=True)
class SamplesForm:
    """The samples themselves: for losses without moments, for sparse samples, and for those that fit nowhere."""

    reason: str = "every iteration reads the samples"
    in_passes: bool = False  # whether no square matrix fits, so that every product is a pass over the samples
    uses_moments = False

    def prepared(self, samples: Samples) -> Samples:
        """Check every number; in passes, samples are cast to double precision block by block whenever they are read."""
        return (samples.in_passes() if self.in_passes else samples).checked()

    def data_fit(
        self, samples: Samples, loss: Loss, *, ridge: float, joint: bool, fit_intercept: bool, spectral: bool = False
    ) -> Squares | SampleLoss:
        """State the loss of the samples; for the squared loss, the products with the samples that solvers ask for."""
        samples = self.prepared(samples)
        if loss.has_moments:
            cut = samples.in_small_blocks()
            return squares_of_samples(
                cut, ridge=ridge, joint=joint, fit_intercept=fit_intercept, in_passes=self.in_passes
            )
        return SampleLoss.of(
            loss, samples, ridge=ridge, joint=joint, fit_intercept=fit_intercept, in_passes=self.in_passes
        )


def choose_form(samples: Samples, loss: Loss, memory: int | None = None) -> Form:
    """Choose how to keep the problem of samples, given the bytes of free memory, which are looked up where None.

    Moments need p by p numbers and no further look at the samples; a basis of the span of fewer samples than entries needs
    n by p. A loss without moments needs the samples anyway. A pass over sparse samples costs less than a product with a large
    square matrix, so for them moments are only for few features.
    """
    p = math.prod(samples.shape)
    n = _UNKNOWN if samples.n_samples is None else samples.n_samples
    if is_sparse(samples.like) and not (loss.has_moments and p <= min(2 * n, LARGEST_DENSE)):
        return SamplesForm("products with the sparse samples take the place of square matrices")
    gram_bytes = 8 * p * p
    basis_bytes = 8 * n * max(n, p) if samples.in_memory else _UNKNOWN
    smallest = min(gram_bytes, basis_bytes)
    if memory is None:
        memory = _UNKNOWN if smallest <= _SMALL_MATRIX else _free_memory(samples)
    if 4 * smallest > memory:  # the matrix, its factor, and what a factorisation needs in addition
        size = smallest / 2**30
        return SamplesForm(
            f"a matrix of {size:.1f} GiB does not fit, so the samples are read in passes", in_passes=True
        )
    if not loss.has_moments:
        return SamplesForm("the loss has no moments, so every iteration reads the samples")
    # Below about half as many samples as features their span is smaller and its products are cheaper.
    if 2 * n < p or (n < p and 4 * gram_bytes > memory):
        return BasisForm(f"{n} samples span at most {n} of {p} dimensions, so all products are taken there")
    return MomentsForm(f"{p} by {p} moments hold all that the samples say about a linear model")


def _free_memory(samples: Samples) -> int:
    """Find the bytes that are free where samples are: on their device, or where blocks are summed."""
    on_device = None if samples.like is None else free_memory(samples.like)
    return int(samples.execution.memory()) if on_device is None else on_device
