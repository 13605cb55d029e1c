"""Chain: transformers one after the other, as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from sklearn.base import clone

from tracelearn.arrays.array_api import Array, as_dtype, widest
from tracelearn.errors import refuse
from tracelearn.features.base import LinearTransformer, TensorTransformer, fit_copy
from tracelearn.features.summaries import Summary
from tracelearn.features.training import Size, Summarise, TrainingSamples

__all__ = ["Chain", "LinearChain", "chained"]


class Chain(TensorTransformer):
    """Transform samples by several transformers of this package, one after the other.

    Parameters
    ----------
    transformers : list of transformers, at least one
        Each sees samples as those before show them, as tensors.
    tensor_shape : sequence of ints, default=None
        The shape of a sample if X is flat, of shape (n_samples, n_features).

    Attributes
    ----------
    transformers_ : list of fitted transformers
    n_samples_seen_ : int, or float with sample weights
    sample_shape_ : tuple of ints
    n_features_in_ : int
        Number of entries of a sample.

    Notes
    -----
    Samples may have gaps and be of unequal length where the first transformer takes these.

    ``fit`` makes the passes of each transformer in turn. With ``partial_fit`` a transformer sees new samples as those before it
    show them after they have learned from these.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn import Chain, ModeWhitener, SecondOrder
    >>> X = np.random.default_rng(0).normal(size=(30, 4, 50))
    >>> Chain([ModeWhitener(time_axis=-1), SecondOrder()]).fit_transform(X).shape
    (30, 5, 5)
    """

    transformers_: list[TensorTransformer]

    learns_in_one_pass = False

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 - scikit-learn's convention
        "transformers": [list],
        "tensor_shape": ["array-like", None],
    }

    def __init__(self, transformers: list[Any], *, tensor_shape: Any = None) -> None:
        self.transformers = transformers
        self.tensor_shape = tensor_shape

    @classmethod
    def from_fitted(cls, transformers: Sequence[TensorTransformer]) -> Self:
        """Chain transformers that are fitted, each to samples as those before show them."""
        chain = cls([clone(transformer) for transformer in transformers])
        first = vars(transformers[0])
        names = ("sample_shape_", "n_features_in_", "n_samples_seen_", "takes_any_length_")
        chain.publish({name: first[name] for name in names if name in first} | {"transformers_": list(transformers)})
        return chain

    @property
    def keeps_entries(self) -> bool:  # type: ignore[override]
        """Whether all transformers keep the entries of samples."""
        return all(transformer.keeps_entries for transformer in self.transformers)

    @property
    def has_small_products(self) -> bool:  # type: ignore[override]
        """Whether some transformer multiplies many small matrices."""
        return any(transformer.has_small_products for transformer in self.transformers)

    @property
    def takes_gaps(self) -> bool:  # type: ignore[override]
        """Whether the first transformer takes samples with gaps and of any length: what it makes of them is complete."""
        return bool(self.transformers) and getattr(self.transformers[0], "takes_gaps", False)

    def time_mode(self, shape: tuple[int, ...]) -> int | None:
        """Find the mode that is time for the first transformer; see ``TensorTransformer``."""
        return self.transformers[0].time_mode(shape)  # type: ignore[no-any-return]

    def learned_shape(self, shape: tuple[int, ...], n_times: int | None = None) -> tuple[int, ...]:
        """Return the shape of samples for the first transformer; see ``TensorTransformer``."""
        return self.transformers[0].learned_shape(shape, n_times)  # type: ignore[no-any-return]

    @property
    def windows(self) -> int:
        """The number of windows that the last transformer cuts time into, each of which has a norm of its own in a search."""
        return getattr(self.transformers[-1], "windows", 1)

    # --- learning ----------------------------------------------------------------------------------------------------

    def learn(self, samples: TrainingSamples, earlier: Any) -> dict[str, Any]:
        """Fit every transformer to samples as those before show them."""
        are_ours = all(isinstance(transformer, TensorTransformer) for transformer in self.transformers)
        refuse(
            not self.transformers or not are_ours,
            f"Expected a list of transformers of tracelearn, at least one, got {self.transformers!r}: put others after the "
            "chain, in a Pipeline.",
        )
        fitted: list[TensorTransformer] = []
        for place, transformer in enumerate(self.transformers):
            shown = samples if place == 0 else ShownSamples(samples, tuple(fitted))
            before = None if earlier is None else earlier.transformers_[place]
            fitted.append(fit_copy(transformer, shown, before))
        learned = {"n_samples_seen_": fitted[0].n_samples_seen_, "transformers_": fitted}
        return learned | ({"takes_any_length_": fitted[0].takes_any_length_} if self.takes_gaps else {})

    # --- applying ----------------------------------------------------------------------------------------------------

    def transform_tensors(self, T: Array) -> Array:
        """Apply one transformer after the other."""
        return _shown(T, self.transformers_)

    @property
    def output_shape_(self) -> tuple[int, ...]:
        """The shape of what the last transformer returns."""
        return self.transformers_[-1].output_shape_

    def numbers_per_sample(self, shape: tuple[int, ...]) -> int:
        """Count the numbers of all transformers."""
        return _numbers_of(self.transformers_, shape)


class LinearChain(Chain, LinearTransformer):
    """A chain of transformers that are all linear, and so is linear itself; see ``Chain``."""

    transformers_: list[LinearTransformer]  # type: ignore[assignment]

    def invert_tensors(self, Z: Array) -> Array:
        """Undo the transformers, the last one first."""
        for transformer in reversed(self.transformers_):
            Z = transformer.invert_tensors(Z)
        return Z

    def adjoint(self, W: Array) -> Array:
        """Multiply weights by the transposed matrices, the last one first."""
        for transformer in reversed(self.transformers_):
            W = transformer.adjoint(W)
        return W


def chained(transformers: Sequence[TensorTransformer]) -> TensorTransformer:
    """Make one fitted transformer of several: linear if all of them are."""
    if len(transformers) == 1:
        return transformers[0]
    are_linear = all(isinstance(transformer, LinearTransformer) for transformer in transformers)
    return (LinearChain if are_linear else Chain).from_fitted(transformers)


@dataclass(frozen=True, eq=False)
class ShownSamples(TrainingSamples):
    """Training samples as fitted transformers show them."""

    samples: TrainingSamples
    transformers: tuple[TensorTransformer, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a transformed sample."""
        return self.transformers[-1].output_shape_

    def total(self, summarise: Summarise, numbers_per_sample: Size) -> Summary:
        """Transform every block and add up the summaries."""

        def summarise_shown(T: Array, weight: Array) -> Summary:
            return summarise(_shown(as_dtype(T, widest(T)["dtype"]), self.transformers), weight)

        def count(shape: tuple[int, ...]) -> int:
            return _numbers_of(self.transformers, shape) + numbers_per_sample(self.shape)

        return self.samples.total(summarise_shown, count)


def _shown(T: Array, transformers: Sequence[TensorTransformer]) -> Array:
    """Apply transformers to tensors, in double precision, one after the other."""
    for transformer in transformers:
        T = transformer.transform_tensors(T)
    return T


def _numbers_of(transformers: Sequence[TensorTransformer], shape: tuple[int, ...]) -> int:
    """Count the numbers of one sample in all transformers."""
    count = 0
    for transformer in transformers:
        count += transformer.numbers_per_sample(shape)
        shape = transformer.output_shape_
    return count
