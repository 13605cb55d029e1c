"""PerGroup: a transformer that each group of samples has of its own, learned from its own samples without any targets."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import Array, array_namespace, is_non_numpy, move_to
from tracelearn.errors import InputError, refuse
from tracelearn.samples.lengths import padded
from tracelearn.samples.modes import read_named
from tracelearn.samples.per_sample import read_groups
from tracelearn.samples.rows import other_shape
from tracelearn.samples.scikit_learn import take_rows
from tracelearn.samples.source import as_source, is_dask

__all__ = ["PerGroup", "fit_to_group", "in_order", "indexable_samples", "samples_by_group", "take_samples"]

FEWEST_SAMPLES = 2  # of a group: one alone says nothing of how samples of its group vary


class PerGroup(TransformerMixin, BaseEstimator):
    """Transform the samples of each group by a transformer that is fitted to these samples alone.

    A group is a person, a device, a day: what its samples have in common, such as gain, offset or how sources mix, is taken away
    where the transformer does so. No targets are used, and a group that ``fit`` has not seen is no different from one that it
    has: groups that are given to ``transform`` are aligned by the samples that are given there. The samples of a group are
    transformed together, so the result for one sample depends on which others of its group come with it: this is
    transductive.

    - ``PerGroup(ModeWhitener(time_axis=-1, unit_variance=True))``: channels of each person whitened and of one gain, Euclidean
      alignment (He and Wu, 2020).
    - ``PerGroup(SecondOrder())``: covariances relative to the mean of their own group, recentring (Zanini and others, 2018).
    - ``PerGroup(TensorStandardScaler(per=0))``: level and gain of each channel of each device.

    Parameters
    ----------
    transformer : transformer
        Of this package, or any other that learns without targets. It is cloned for each group.

    Attributes
    ----------
    transformers_ : dict
        The fitted transformer of each group that ``fit`` was given. ``transform`` does not use them: it fits new ones.
    n_features_in_ : int
        Number of entries of a sample.

    Notes
    -----
    ``fit``, ``transform`` and ``fit_transform`` request ``groups`` from scikit-learn's metadata routing, so that a Pipeline
    passes them on where routing is enabled. Arrays of any library stay what and where they are, and Dask arrays lazy, as far as
    the transformer allows; samples in files and blocks are read into memory.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn import ModeWhitener, PerGroup
    >>> rng = np.random.default_rng(0)
    >>> person = np.repeat(["a", "b"], 40)
    >>> gain = np.where(person == "a", 1.0, 50.0)[:, None, None]
    >>> X = gain * rng.normal(size=(80, 3, 25))
    >>> aligned = PerGroup(ModeWhitener(time_axis=-1, unit_variance=True))
    >>> Z = aligned.fit_transform(X, groups=person)
    >>> bool(abs(Z[person == "a"].std() - Z[person == "b"].std()) < 0.01)
    True
    """

    # What metadata routing passes without being asked to.
    __metadata_request__fit = {"groups": True}  # noqa: RUF012 - scikit-learn's convention
    __metadata_request__transform = {"groups": True}  # noqa: RUF012

    transformers_: dict[Hashable, Any]
    n_features_in_: int

    def __init__(self, transformer: Any) -> None:
        self.transformer = transformer

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """Fit the transformer to each group.

        Parameters
        ----------
        X : array of shape (n_samples, I1, ..., IN), or what else the transformer takes
        y : ignored
        groups : array of shape (n_samples,)
        """
        fitted, _ = self._fit_groups(X, groups)
        self._publish(fitted)
        return self

    def transform(self, X: Any, groups: Any = None) -> Array:
        """Transform samples, each by what is learned from the samples of its group in X."""
        check_is_fitted(self)
        fitted, Z = self._fit_groups(X, groups)
        shape = _shape_of_samples(next(iter(fitted.values())))
        known_shape = _shape_of_samples(next(iter(self.transformers_.values())))
        if shape != known_shape:
            raise other_shape(type(self).__name__, known_shape, shape)
        return Z

    def fit_transform(self, X: Any, y: Any = None, groups: Any = None) -> Array:
        """Fit the transformer to each group, and transform its samples: what ``fit`` and then ``transform`` return."""
        fitted, Z = self._fit_groups(X, groups)
        self._publish(fitted)
        return Z

    def _fit_groups(self, X: Any, groups: Any) -> tuple[dict[Hashable, Any], Array]:
        """Fit a clone to each group; return these, and the samples as they show them."""
        X, members = samples_by_group(X, groups, type(self).__name__)
        fitted = {}
        blocks = []
        for group, index in members.items():
            block = take_samples(X, index)
            fitted[group] = fit_to_group(self.transformer, block, group)
            blocks.append(fitted[group].transform(block))
        return fitted, in_order(blocks, list(members.values()))

    def _publish(self, fitted: dict[Hashable, Any]) -> None:
        """Write the fitted attributes: the only place that does."""
        self.transformers_ = fitted
        self.n_features_in_ = next(iter(fitted.values())).n_features_in_

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Name the entries of a transformed sample, as the transformer does."""
        check_is_fitted(self)
        return next(iter(self.transformers_.values())).get_feature_names_out(input_features)

    def __sklearn_tags__(self) -> Tags:
        inner = get_tags(self.transformer)
        return replace(super().__sklearn_tags__(), input_tags=inner.input_tags, transformer_tags=inner.transformer_tags)


def _shape_of_samples(fitted: Any) -> tuple[int, ...]:
    """Return the shape of the samples that a transformer is fitted to, with zero for a mode of any length."""
    shape: tuple[int, ...] = getattr(fitted, "sample_shape_", (fitted.n_features_in_,))
    if not getattr(fitted, "takes_any_length_", False):
        return shape
    time = fitted.time_mode(shape)
    return (*shape[:time], 0, *shape[time + 1 :])


# --- samples of groups ---------------------------------------------------------------------------------------------------


def samples_by_group(X: Any, groups: Any, name: str) -> tuple[Any, dict[Hashable, Array]]:
    """Return samples that can be indexed, and for each group the indices of its samples; ``name`` is whose error it is."""
    if groups is None:
        raise InputError(
            f"Expected groups=, the group of each sample, for {name}, got none: each group is aligned by its own samples."
        )
    X = indexable_samples(X)
    n_samples = X.shape[0] if hasattr(X, "shape") else len(X)
    return X, members_of_groups(read_groups(groups, int(n_samples)))


def indexable_samples(X: Any) -> Any:
    """Return samples that can be indexed: arrays and frames as they are, files and blocks in memory, unequal lengths padded."""
    X, _ = read_named(padded(X).values)
    if is_dask(X) or hasattr(X, "columns"):
        return X
    X, _, _ = as_source(X).loaded().arrays
    return X if hasattr(X, "shape") else np.asarray(X)


def members_of_groups(groups: Array) -> dict[Hashable, Array]:
    """Find the indices of the samples of each group, given the group of each sample (n,)."""
    labels, number_of_group = np.unique(groups, return_inverse=True)
    return {label: np.flatnonzero(number_of_group == number) for number, label in enumerate(labels.tolist())}


def take_samples(X: Any, index: Array) -> Any:
    """Take the samples of an index, of an array of any library, of Dask or of a frame."""
    if hasattr(X, "columns"):
        return take_rows(X, index)
    if is_non_numpy(X) and not is_dask(X):
        return array_namespace(X).take(X, move_to(index, X), axis=0)
    return X[index]


def fit_to_group(transformer: Any, X: Any, group: Any = None) -> Any:
    """Fit a clone of a transformer to the samples of one group; refuse one sample alone, which says nothing of its group."""
    name = "a new group" if group is None else f"group {group!r}"
    refuse(
        hasattr(X, "shape") and X.shape[0] < FEWEST_SAMPLES,
        f"Expected at least {FEWEST_SAMPLES} samples of {name} to align it by, got one: give more of its samples, or use "
        "adapted(X) of a search once, and then predict one sample at a time.",
    )
    fitted = clone(transformer)
    if hasattr(fitted, "set_output"):
        fitted.set_output(transform="default")
    return fitted.fit(X)


def in_order(blocks: Sequence[Array], members: Sequence[Array]) -> Array:
    """Put what was made of the samples of each group into the order in which the samples came."""
    place = np.empty(sum(len(index) for index in members), dtype=int)
    place[np.concatenate(members)] = np.arange(len(place))
    xp = array_namespace(blocks[0])
    joined = blocks[0] if len(blocks) == 1 else xp.concat(list(blocks))
    return take_samples(joined, place)
