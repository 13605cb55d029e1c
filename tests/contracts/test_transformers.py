"""What every transformer learns depends on the samples alone: not on their order, unit, blocks, or on what weighs nothing.

Samples without gaps are transformed as if no others had any.
"""

import dask.array as da
import numpy as np
import pytest
import registry
from sklearn.base import clone

from tracelearn import features
from tracelearn.features import TensorTransformer, training
from tracelearn.features.base import LinearTransformer

TRANSFORMERS = registry.TRANSFORMERS | registry.FOR_POSITIVE_SAMPLES
every = pytest.mark.parametrize("name", TRANSFORMERS)
TAKE_GAPS = [name for name, transformer in TRANSFORMERS.items() if transformer.takes_gaps]
every_that_takes_gaps = pytest.mark.parametrize("name", TAKE_GAPS)


def samples_for(name, n=50, shape=(4, 3, 17), seed=0):
    """Draw samples whose channels move together, in sizes of their own, far from zero; positive ones where they must be."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, *shape)) + rng.standard_normal((n, 1, 1, shape[-1]))
    if name in registry.FOR_POSITIVE_SAMPLES:
        return np.exp(X)
    return X * np.exp(rng.standard_normal((4, 3, 1))) + 3.0 * rng.standard_normal((4, 3, 1))


def with_gaps(X, seed=1):
    """Drop entries, channels of whole samples, and the ends of some samples."""
    rng = np.random.default_rng(seed)
    X = X.copy()
    X[rng.random(X.shape) < 0.05] = np.nan
    X[::4, 1, 2] = np.nan
    X[1::6, ..., 13:] = np.nan
    return X


def fitted(name, X, weight=None):
    return clone(TRANSFORMERS[name]).fit(X, sample_weight=weight)


def assert_alike(Z, expected, rtol=1e-8):
    np.testing.assert_allclose(Z, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


def test_every_transformer_is_under_contract():
    public = [member for member in vars(features).values() if isinstance(member, type)]
    transformers = {kind for kind in public if issubclass(kind, TensorTransformer)}
    assert {type(transformer) for transformer in TRANSFORMERS.values()} == transformers - {TensorTransformer}


@every
@pytest.mark.parametrize("block_bytes", [training._BLOCK_BYTES, 20_000])
def test_the_order_of_samples_decides_nothing(name, block_bytes, monkeypatch):
    monkeypatch.setattr(training, "_BLOCK_BYTES", block_bytes)
    X = samples_for(name)
    order = np.random.default_rng(1).permutation(len(X))
    assert_alike(fitted(name, X[order]).transform(X), fitted(name, X).transform(X))


@every
def test_samples_of_weight_zero_are_left_out(name):
    X = samples_for(name)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(X))
    weight[[0, 7, 49]] = weight[20:30] = 0.0
    counts = weight > 0
    expected = fitted(name, X[counts], weight[counts]).transform(X)
    X_with_others = X.copy()
    X_with_others[~counts] = 1e9 * X[~counts] ** 2
    assert_alike(fitted(name, X_with_others, weight).transform(X), expected, rtol=1e-12)
    cluster = da.from_array(X_with_others, chunks=(10, *X.shape[1:]))  # one chunk weighs nothing
    assert_alike(fitted(name, cluster, weight).transform(X), expected)


def normalised(Z):
    """Subtract the mean of every entry, and divide by the size of what is left: what a linear model can learn from it."""
    Z = Z - Z.mean(axis=0)
    return Z / np.linalg.norm(Z)


@every
@pytest.mark.parametrize("unit", [1e-13, 1e13])
def test_the_unit_of_samples_changes_nothing_but_the_unit_of_the_result(name, unit):
    X = samples_for(name)
    transformer = clone(TRANSFORMERS[name])
    if isinstance(transformer, features.Views):
        transformer.set_params(scaling=True)  # views that have a unit are added to others that have none
    expected = transformer.fit_transform(X)
    Z = clone(transformer).fit_transform(unit * X)
    if name == "lengths":
        np.testing.assert_array_equal(Z, expected)
        return
    assert_alike(normalised(Z), normalised(expected), rtol=1e-7)
    if isinstance(transformer, LinearTransformer):  # exactly as large as before, or in the unit of the samples
        size = np.linalg.norm(Z) / np.linalg.norm(expected)
        assert np.isclose(size, 1.0) or np.isclose(size, unit)


@every_that_takes_gaps
def test_gaps_of_some_samples_change_nothing_in_the_others(name):
    X = samples_for(name)
    transformer = fitted(name, X)
    gappy = X.copy()
    gappy[::2] = with_gaps(X)[::2]
    Z = transformer.transform(gappy)
    np.testing.assert_array_equal(Z[1::2], transformer.transform(X)[1::2])
    assert np.all(np.isfinite(Z))


@every_that_takes_gaps
def test_order_and_blocks_of_samples_with_gaps_decide_nothing(name, monkeypatch):
    X = with_gaps(samples_for(name))
    expected = fitted(name, X).transform(X)
    order = np.random.default_rng(1).permutation(len(X))
    monkeypatch.setattr(training, "_BLOCK_BYTES", 20_000)
    for samples in (X, X[order]):
        assert_alike(fitted(name, samples).transform(X), expected)


@every_that_takes_gaps
def test_weights_of_samples_with_gaps_are_repetitions(name):
    X = with_gaps(samples_for(name))
    counts = np.random.default_rng(1).integers(0, 4, len(X))
    weighted, repeated = fitted(name, X, counts.astype(float)), fitted(name, np.repeat(X, counts, axis=0))
    assert weighted.sample_shape_ == repeated.sample_shape_
    assert_alike(weighted.transform(X), repeated.transform(X))
