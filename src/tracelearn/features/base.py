"""What transformers of tensors share: learning from samples wherever they are, and transforming them in blocks.

A new transformer is a class with one method, or a few, see ``TensorTransformer``. What is learned is small and is held as arrays
of NumPy in double precision; ``transform`` returns arrays of the library, device and precision of its samples.
"""

from __future__ import annotations

import copy
import functools
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import Array, array_namespace, as_dtype, is_non_numpy, move_to, widest
from tracelearn.arrays.linalg import few_threads, one_thread
from tracelearn.features.matrices import multiply_modes
from tracelearn.features.summaries import Summary, mode_scatters, squares, summarise
from tracelearn.features.training import TensorReader, TensorSamples, TrainingSamples, blocks_of, training_samples
from tracelearn.samples.checks import check_finite, float_dtype
from tracelearn.samples.cluster import lazily
from tracelearn.samples.learning import learning
from tracelearn.samples.lengths import Padded, padded
from tracelearn.samples.modes import is_named, like_input, read_named
from tracelearn.samples.scikit_learn import check_feature_names_in, get_output_config
from tracelearn.samples.source import as_source, is_dask

__all__ = ["TAKES_LONG", "LinearTransformer", "ModeTransformer", "TensorTransformer", "fit_copy"]

TAKES_LONG = "it would take long"  # why a search does not try a transformer that suits the samples otherwise


class TensorTransformer(TransformerMixin, BaseEstimator):
    """Learns from samples that are tensors, in memory, in blocks or on a cluster, and turns each into another tensor.

    A transformer is a class with one method, ``transform_tensors(T)``, which returns the transformed block. No method of a
    transformer writes attributes: what is learned is returned, and published here.

    What it learns, by default, are ``mean_`` and ``var_``: mean and variance over the training samples of ``quantities(T)``, by
    default the entries of a sample. One that learns something else that adds up over samples overrides three methods:

    ``summarise_tensors(T, weight)``
        The summary of a block; summaries of blocks add up.
    ``attributes_from(summary, shape)``
        The fitted attributes that follow from the summary of all samples.
    ``past_summary()``
        The summary of the samples so far, rebuilt from the fitted attributes: ``partial_fit`` adds to it.

    One that needs several passes, or other transformers inside, overrides ``learn`` instead. The rest is overridden where it
    differs: ``output_shape_`` (by default that of a sample), ``numbers_per_sample`` (memory), ``why_not`` (the samples for which
    a search should not try it), and the flags below.
    """

    sample_shape_: tuple[int, ...]
    n_samples_seen_: float
    mean_: Any
    var_: Any
    _parameter_constraints: dict[str, list[Any]] = {}  # noqa: RUF012 - scikit-learn's convention: any value is taken
    modes_: Any = None  # of samples with names
    takes_any_length_: (
        bool  # of transformers that take gaps: whether samples may be of another length than ``sample_shape_``
    )
    # Whether an entry of a transformed sample is that of the sample: flat samples then stay flat.
    keeps_entries = True
    # If False, samples that can be read once only are learned block by block, as by partial_fit.
    learns_in_one_pass = True
    # Whether samples may have NaN, and end before others do; see ``time_mode``.
    takes_gaps = False
    # Whether many small matrices are multiplied, which several threads of BLAS make slower.
    has_small_products = False
    # Whether a linear model of transformed samples follows nearly any function of the samples. A search adds such a view to
    # others only where it explains clearly more.
    is_flexible = False
    # Whether transforming takes about as long as by all other views of a search together: fewer questions are then asked of it.
    takes_long = False

    # --- what each transformer says for itself -----------------------------------------------------------------------

    @abstractmethod
    def transform_tensors(self, T: Array) -> Array:
        """Transform a block of tensors (n, I1, ..., IN) in double precision, which is not checked."""

    def quantities(self, T: Array) -> Array:
        """Compute from tensors (n, I1, ..., IN), in double precision, what has the mean ``mean_`` and the variance ``var_``."""
        return T

    def summarise_tensors(self, T: Array, weight: Array) -> Summary:
        """Summarise a block of tensors (n, I1, ..., IN) with weights (n,), without fitted attributes: there may be none yet."""
        return summarise(self.quantities(as_dtype(T, widest(T)["dtype"])), weight, squares)

    def attributes_from(self, summary: Summary, shape: tuple[int, ...]) -> dict[str, Any]:
        """Return the fitted attributes that follow from the summary of all samples, of this shape."""
        return {"mean_": summary.mean, "var_": summary.sums[0] / summary.weight}

    def past_summary(self) -> Summary:
        """Return the summary of all samples so far, from the fitted attributes."""
        weight = float(self.n_samples_seen_)
        return Summary(weight, self.mean_, [weight * self.var_], squares)

    @property
    def output_shape_(self) -> tuple[int, ...]:
        """The shape of a transformed sample."""
        return self.sample_shape_

    def numbers_per_sample(self, shape: tuple[int, ...]) -> int:
        """Count the numbers that one sample of a shape needs while it is worked on: blocks have as many as stay in cache."""
        return math.prod(shape)

    def time_mode(self, shape: tuple[int, ...]) -> int | None:
        """Find the mode along which samples of a shape may be of any length, for transformers that take gaps."""
        return None

    def learned_shape(self, shape: tuple[int, ...], n_times: int | None = None) -> tuple[int, ...]:
        """Return ``sample_shape_`` for samples of a shape; ``n_times`` is their median length where they have several."""
        time = self.time_mode(shape)
        return shape if time is None or n_times is None else (*shape[:time], n_times, *shape[time + 1 :])

    def why_not(self, shape: tuple[int, ...], n_samples: int, positive: bool = False) -> str:
        """Say why a search should not try this transformer on such samples; "" where it should.

        Parameters
        ----------
        shape : that of a sample
        n_samples : their number
        positive : whether all entries are above zero
        """
        return ""

    def suits(self, shape: tuple[int, ...], n_samples: int, positive: bool = False) -> bool:
        """Tell whether a search should try this transformer, with its parameters, on such samples; see ``why_not``."""
        return not self.why_not(shape, n_samples, positive)

    # --- learning ----------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from all samples.

        Parameters
        ----------
        X : array of shape (n_samples, I1, ..., IN), or (n_samples, n_features) with ``tensor_shape``
            Of NumPy or another array library, of Dask, or samples in blocks: the path of a file, what ``open_source``
            returns, or an iterable of (X, y) or (X, y, weight).
        y : ignored
        sample_weight : array of shape (n_samples,), default=None
        """
        return self._fit(X, sample_weight, earlier=None)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from more samples; afterwards what is learned is that of all samples so far."""
        return self._fit(X, sample_weight, earlier=self if hasattr(self, "n_samples_seen_") else None)

    def fit_tensors(self, T: Array, weight: Array) -> Array:
        """Learn from tensors (n, I1, ..., IN) that are checked and in memory, with weights (n,), and transform them."""
        self.fit_samples(TensorSamples.of(T, weight, self))
        return self.transform_checked(T)

    def fit_samples(self, samples: TrainingSamples, earlier: TensorTransformer | None = None) -> Self:
        """Learn from samples, in addition to those of an ``earlier`` fitted transformer of this kind, if any."""
        self.publish(self._learned(samples, earlier))
        return self

    def learn(self, samples: TrainingSamples, earlier: Any) -> dict[str, Any]:
        """Return the fitted attributes that follow from samples, and from those of an ``earlier`` fitted transformer, if any."""
        summary = samples.total(self.summarise_tensors, self.numbers_per_sample)
        return self.attributes_after(summary, samples.shape, earlier)

    def attributes_after(self, summary: Summary, shape: tuple[int, ...], earlier: Any) -> dict[str, Any]:
        """Return the attributes that follow from the summary of new samples, added to that of an ``earlier`` transformer."""
        if earlier is not None:
            summary = earlier.past_summary() + summary
        return {"n_samples_seen_": summary.n_samples, **self.attributes_from(summary, shape)}

    @learning
    def _fit(self, X: Any, sample_weight: Any, earlier: Any) -> Self:
        """Learn from samples wherever they are, after those of ``earlier``, which may be this transformer."""
        series = padded(X) if self.takes_gaps else Padded(X)
        X, modes = read_named(series.values, None if earlier is None else earlier.modes_)
        if modes is None and earlier is not None:
            modes = earlier.modes_
        source = None if self.learns_in_one_pass or is_dask(X) else as_source(X, None, sample_weight)
        if source is None or source.repeatable:
            blocks: Iterable[tuple[Any, Any]] = [(X, sample_weight)]
        else:
            blocks = ((block, weight) for block, _, weight in source.batches())
        learned: dict[str, Any] = {}
        for block, weight in blocks:
            if learned:
                earlier = copy.copy(self)
                earlier.publish(learned)
            any_length = series.time is not None or getattr(earlier, "takes_any_length_", False)
            samples = training_samples(self, block, weight, earlier, any_length=any_length)
            learned = self._learned(samples, earlier)
            if samples.feature_names is not None:
                learned["feature_names_in_"] = samples.feature_names
            if modes is not None:
                learned["modes_"] = modes
        self.publish(learned)
        return self

    def _learned(self, samples: TrainingSamples, earlier: Any) -> dict[str, Any]:
        """Return all fitted attributes: what ``learn`` returns, and the shape of the samples."""
        learned = self.learn(samples, earlier)
        if self.takes_gaps:
            time = self.time_mode(samples.shape)
            are_unequal = time is not None and samples.are_unequal(time)
            learned.setdefault("takes_any_length_", are_unequal or getattr(earlier, "takes_any_length_", False))
        return {"sample_shape_": samples.shape, "n_features_in_": math.prod(samples.shape), **learned}

    def publish(self, learned: dict[str, Any]) -> None:
        """Replace all fitted attributes by these: the only place where any is written."""
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)
        for name, value in learned.items():
            setattr(self, name, value)

    # --- applying ----------------------------------------------------------------------------------------------------

    def transform(self, X: Any) -> Array:
        """Transform samples; arrays stay in their library, on their device and in their precision.

        A Dask array is transformed when it is computed, and samples in blocks become one array in memory. A DataArray of
        xarray stays one where samples keep their modes. Where ``set_output`` asks for data frames, flat samples become tables
        with the columns of ``get_feature_names_out``.
        """
        check_is_fitted(self)
        if self.takes_gaps and padded(X).time is not None:
            return self._transform_in_memory(padded(X).values, any_length=True)
        if is_named(X):
            values = self.transform(read_named(X, self.modes_)[0])
            return like_input(values, X, self.modes_) if self.keeps_entries else values
        if is_dask(X):
            empty = self._transform_in_memory(np.zeros((1, *X.shape[1:]), X.dtype))[:0]
            return lazily(self._transform_in_memory, X, empty)
        source = as_source(X)
        if source.in_memory:
            return self._transform_in_memory(X)
        return np.concatenate([self._transform_in_memory(block) for block, _, _ in source.batches()])

    def transform_checked(self, T: Array) -> Array:
        """Transform tensors (n, I1, ..., IN) that are checked and in memory; those with gaps may be of any length."""
        return self._in_blocks(self.transform_tensors, T, flat=False)

    def _transform_in_memory(self, X: Any, *, any_length: bool = False) -> Array:
        """Check and transform samples in memory."""
        X = X if hasattr(X, "shape") else np.asarray(X)
        output = get_output_config("transform", self)["dense"]
        # Tables have rows and columns, so only flat samples can become tables.
        if output != "default" and len(X.shape) > 2 and len(self.output_shape_) > 1:
            raise ValueError(
                f"Expected flat samples for the output that set_output asks for, {output}, got tensors: pass flat samples and "
                "tensor_shape, or call set_output(transform='default')."
            )
        flat = output != "default" or (self.keeps_entries and len(X.shape) == 2)
        any_length = any_length or getattr(self, "takes_any_length_", False)
        T = TensorReader(self, fitted=self, any_length=any_length).tensors(X, takes_gaps=self.takes_gaps)
        return self._in_blocks(self.transform_tensors, T, flat=flat)

    def _in_blocks(self, function: Callable[[Array], Array], T: Array, *, flat: bool) -> Array:
        """Apply a function of tensors block by block, in double precision; round only the result to the dtype of T."""
        xp = array_namespace(T)
        double = widest(T)["dtype"]
        n = T.shape[0]
        is_numpy = not is_non_numpy(T)
        in_place = is_numpy and not getattr(self, "copy", True) and T.flags.writeable
        result: Any = T if in_place else None
        blocks = []
        threads = one_thread() if self.has_small_products else few_threads(T) if is_numpy else nullcontext()
        with threads, np.errstate(over="ignore", invalid="ignore"):  # judged below
            for rows in blocks_of(n, self.numbers_per_sample(self.sample_shape_)):
                block = as_dtype(function(as_dtype(T[rows, ...], double)), T.dtype)
                if is_numpy:
                    result = np.empty((n, *block.shape[1:]), T.dtype) if result is None else result
                    result[rows] = block
                else:
                    blocks.append(block)
        result = result if is_numpy else xp.concat(blocks)
        check_finite(result, "transformed entries", overflows=True)
        return xp.reshape(result, (n, -1)) if flat else result

    # --- what scikit-learn asks --------------------------------------------------------------------------------------

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Name the entries of a transformed sample in C order, by the class and their places: "modepca0_2"."""
        check_is_fitted(self)
        check_feature_names_in(self, input_features, generate_names=False)
        places = [(name, place) for name, shape in self.named_shapes() for place in np.ndindex(*shape)]
        return np.asarray([f"{name}{'_'.join(map(str, place))}" for name, place in places], dtype=object)

    def named_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """List the parts of a transformed sample: the name that their entries begin with, and their shape."""
        return [(type(self).__name__.lower(), self.output_shape_)]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = self.takes_gaps
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def fit_copy(transformer: TensorTransformer, samples: TrainingSamples, earlier: Any = None) -> TensorTransformer:
    """Fit a copy of a transformer inside of another to samples, in addition to those of an ``earlier`` fitted copy, if any."""
    fresh = clone(transformer).set_output(transform="default") if earlier is None else copy.copy(earlier)
    return fresh.fit_samples(samples, earlier)  # type: ignore[no-any-return] # clone returns anything


class LinearTransformer(TensorTransformer):
    """Multiplies samples by a matrix, perhaps after a shift: samples can be transformed back, and so can weights."""

    @abstractmethod
    def invert_tensors(self, Z: Array) -> Array:
        """Undo ``transform_tensors``, up to the components that it drops."""

    @abstractmethod
    def adjoint(self, W: Array) -> Array:
        """Multiply weights (K, ...) of transformed samples by the transposed matrix."""

    def inverse_transform(self, X: Any) -> Array:
        """Transform samples back, tensors or flat, up to the components that ``transform`` drops."""
        check_is_fitted(self)
        Z = X if is_non_numpy(X) else np.asarray(X)
        shape = self.output_shape_
        if tuple(Z.shape[1:]) not in (shape, (math.prod(shape),)):
            raise ValueError(
                f"Expected transformed samples of shape {shape}, or flat, got an array of shape {tuple(Z.shape)}: pass what "
                "transform returns."
            )
        rows = array_namespace(Z).reshape(as_dtype(Z, float_dtype(Z)), (Z.shape[0], -1))
        check_finite(rows, "X", shape)
        T = array_namespace(Z).reshape(rows, (-1, *shape))
        return self._in_blocks(self.invert_tensors, T, flat=self.keeps_entries and Z.ndim == 2)

    def coef_to_input(self, W: Array) -> Array:
        """Express weights that were learned on transformed samples as weights of the samples themselves.

        ``<W, transform(X)>`` and ``<coef_to_input(W), X>`` differ by a constant, which is zero where nothing is subtracted.

        Parameters
        ----------
        W : array of the shape of a transformed sample, or of several, (K, ...), such as ``coef_`` of a model
        """
        check_is_fitted(self)
        W = W if is_non_numpy(W) else np.asarray(W)
        shape = self.output_shape_
        if shape not in (tuple(W.shape), tuple(W.shape[1:])):
            raise ValueError(
                f"Expected weights of shape {shape}, or (K, {', '.join(map(str, shape))}), got shape {tuple(W.shape)}: pass "
                "coef_ of a model that was fitted on what transform returns."
            )
        xp = array_namespace(W)
        weights = self.adjoint(xp.reshape(W, (-1, *shape)))
        return xp.reshape(weights, (*W.shape[: W.ndim - len(shape)], *self.sample_shape_))


class ModeTransformer(LinearTransformer):
    """Learns the mean and the covariance of every mode, and multiplies every mode by a matrix that follows from these."""

    center = True
    mean_: Array
    mode_covariances_: list[Array]

    @property
    @abstractmethod
    def mode_matrices(self) -> list[Array]:
        """What every mode is multiplied by, (r_n, I_n) each."""

    def summarise_tensors(self, T: Array, weight: Array) -> Summary:
        """Sum the scatter matrix ``T_(n) T_(n)'`` of every mode n, from which its covariance follows."""
        return summarise(T, weight, functools.partial(mode_scatters, modes=range(T.ndim - 1)))

    def past_summary(self) -> Summary:
        """Return the mean and the sums of products of every mode."""
        weight = float(self.n_samples_seen_)
        scatters = [weight * C for C in self.mode_covariances_]
        return Summary(weight, self.mean_, scatters, functools.partial(mode_scatters, modes=range(len(scatters))))

    def transform_tensors(self, T: Array) -> Array:
        """Multiply every mode by its matrix."""
        T = T - move_to(self.mean_, T, T.dtype) if self.center else T
        return multiply_modes(T, self.mode_matrices)

    def invert_tensors(self, Z: Array) -> Array:
        """Multiply every mode by the pseudoinverse of its matrix."""
        T = multiply_modes(Z, [np.linalg.pinv(matrix) for matrix in self.mode_matrices])
        return T + move_to(self.mean_, T, T.dtype) if self.center else T

    def adjoint(self, W: Array) -> Array:
        """Multiply every mode by the transpose of its matrix."""
        return multiply_modes(W, [matrix.T for matrix in self.mode_matrices])
