"""Transformers: contracts that all of them keep, wherever samples are, and the mathematics of each."""

import functools
import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import array_api_strict
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyriemann.estimation import TimeDelayCovariances
from pyriemann.geometry.covariance import block_covariances, covariances
from pyriemann.geometry.tangentspace import log_map_riemann, tangent_space
from registry import TRANSFORMERS
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from tracelearn import (
    Chain,
    Convolutions,
    Detrend,
    Logarithm,
    ModePCA,
    ModeWhitener,
    SavitzkyGolay,
    ScatterCorrection,
    SecondOrder,
    Similarities,
    TensorStandardScaler,
    Thresholds,
    TraceNormClassifier,
    TraceNormRegressor,
    Views,
    open_source,
)
from tracelearn.arrays.array_api import to_numpy
from tracelearn.datasets import make_low_rank_regression
from tracelearn.features import TensorTransformer, find_time_axis, training
from tracelearn.features.convolutions import WAVEFORMS

SHAPE = (4, 3, 5)
EVERY_PER = ["feature", "global", 0, -1, (0, 2), ()]
every_per = pytest.mark.parametrize("per", EVERY_PER, ids=str)

DROPS = ("compression", "smoothing", "derivative", "detrending")  # these do not keep all of a sample
every = pytest.mark.parametrize("name", TRANSFORMERS)
linear = pytest.mark.parametrize(
    "name",
    [
        "scaler",
        "scaler by mode",
        "whitener",
        "whitener of some modes",
        "compression",
        "smoothing",
        "derivative",
        "detrending",
    ],
)

ARBITRARY = "the check has fewer samples than features: directions without variance are any basis of what is left"
EXPECTED_FAILURES = {"ModePCA()": {"check_sample_weight_equivalence_on_dense_data": ARBITRARY}}


@parametrize_with_checks(
    [
        TensorStandardScaler(),
        TensorStandardScaler("global"),
        TensorStandardScaler(per=0, with_mean=False),
        TensorStandardScaler(with_std=False),
        ModeWhitener(),
        ModePCA(),
        ModePCA(2),
        ModePCA(0.8, n_iter=1),
        SavitzkyGolay(window=1, degree=0, scaling=True),
        Detrend(0),
        ScatterCorrection("msc"),
        SecondOrder(),
        Convolutions(thresholds=2),
        Similarities(),
        Views([("raw", None), ("white", ModeWhitener())]),
    ],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES.get(repr(estimator), {}),
)
def test_the_common_checks_of_scikit_learn_pass(estimator, check):
    check(estimator)


@pytest.fixture(name="X")
def samples(rng):
    scales = np.exp(rng.standard_normal(SHAPE))
    return rng.standard_normal((60, *SHAPE)) * scales + 3.0 * rng.standard_normal(SHAPE)


def correlated(n=200, shape=(8, 7, 6), seed=0):
    return make_low_rank_regression(n, shape, correlation=0.8, random_state=seed)[0]


def flat(X):
    return X.reshape(len(X), -1)


def in_batches(model, X, cuts, weight=None):
    for part in np.split(np.arange(len(X)), cuts):
        model.partial_fit(X[part], sample_weight=None if weight is None else weight[part])
    return model


# --- contracts of all ------------------------------------------------------------------------------------------------


def learned(model):
    """List all arrays that were learned, also by the transformers inside."""
    found = [np.asarray(value, dtype=float) for value in (model.n_samples_seen_, model.n_features_in_)]
    names = ("mean_", "var_", "scale_", "reference_", "whitener_", "unit_", "view_factors_")
    for name in (*names, "draws_", "thresholds_", "landmarks_"):
        if getattr(model, name, None) is not None:
            found.append(np.asarray(getattr(model, name)))
    for name in ("mode_covariances_", "mode_whiteners_", "components_"):
        found.extend(getattr(model, name, []))
    for child in getattr(model, "transformers_", []):
        found.extend(learned(child))
    return found


def assert_same(model, other, rtol=1e-8):
    for one, two in zip(learned(model), learned(other), strict=True):
        np.testing.assert_allclose(one, two, rtol=rtol, atol=rtol * max(1e-3, np.abs(two).max()))


def assert_same_but_for_scales(model, other):
    """Compare what batches give with what all samples give: the variance of a view that learns is of the view as it was."""
    if not hasattr(model, "view_shapes_"):
        assert_same(model, other)
        return
    for one, two in zip(model.transformers_, other.transformers_, strict=True):
        assert_same(one, two)
    assert model.view_shapes_ == other.view_shapes_
    np.testing.assert_allclose(model.scale_[0], other.scale_[0])  # of the sample itself


@every
@pytest.mark.parametrize("weighted", [False, True])
def test_batches_blocks_files_and_clusters_do_not_matter(X, rng, name, weighted, monkeypatch, tmp_path):
    weight = rng.uniform(0.1, 2.0, len(X)) * (np.arange(len(X)) % 5 != 2) if weighted else None
    fresh = functools.partial(clone, TRANSFORMERS[name])
    whole = fresh().fit(X, sample_weight=weight)
    assert isinstance(whole.n_samples_seen_, float if weighted else int)
    expected = whole.transform(X)
    cuts = [1, 2, 17, 40]
    assert_same_but_for_scales(in_batches(fresh(), X, cuts, weight), whole)
    np.savez(tmp_path / "samples.npz", X=X, w=np.ones(len(X)) if weight is None else weight)
    source = open_source(tmp_path / "samples.npz", target=None, weight="w" if weighted else None, block_bytes=3000)
    weights = np.split(np.ones(len(X)) if weight is None else weight, cuts)
    blocks = [(part, None, w) for part, w in zip(np.split(X, cuts), weights, strict=True)]
    cluster = da.from_array(X, chunks=(13, 2, 3, 5))
    for samples, own in [(source, None), (blocks, None), (cluster, weight)]:
        model = fresh().fit(samples, sample_weight=own)
        assert_same(model, whole)
        found = model.transform(samples)
        if samples is cluster:
            assert isinstance(found, da.Array)
            assert (found.dtype, found.shape) == (X.dtype, expected.shape)
            found = found.compute()
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)
    monkeypatch.setattr(training, "_BLOCK_BYTES", 3000)
    model = fresh().fit(X, sample_weight=weight)
    assert_same(model, whole)
    np.testing.assert_allclose(model.transform(X), expected, rtol=1e-8, atol=1e-8)


@every
def test_an_iterator_of_blocks_is_read_once(X, name):
    found = clone(TRANSFORMERS[name]).fit((X[i : i + 20], None) for i in range(0, len(X), 20))
    assert_same_but_for_scales(found, clone(TRANSFORMERS[name]).fit(X))


@pytest.mark.parametrize("name", ["second order", "similarities", "views", "chain", "resampled"])
def test_a_fit_that_fails_at_a_later_block_leaves_what_was_learned(X, name):
    model = clone(TRANSFORMERS[name]).fit(X)
    expected = model.transform(X)
    bad = np.full_like(X, np.inf)
    for learn in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match="infinity"):
            learn((block, None) for block in (2.0 * X, bad))
        assert model.n_samples_seen_ == len(X)
        np.testing.assert_array_equal(model.transform(X), expected)


@every
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_arrays_of_every_library_stay_there_and_give_the_same(X, rng, name, dtype, xp, monkeypatch):
    X = X.astype(dtype)
    weight = rng.uniform(0.1, 2.0, len(X))
    expected = clone(TRANSFORMERS[name]).fit(X, sample_weight=weight)
    there = xp.asarray(X)
    tol = 1e-9 if dtype == "float64" else 1e-5
    for size in (training._BLOCK_BYTES, 3000):
        monkeypatch.setattr(training, "_BLOCK_BYTES", size)
        model = clone(TRANSFORMERS[name]).fit(there, sample_weight=xp.asarray(weight))
        assert_same(model, expected, rtol=1e-9)
        found = model.transform(there)
        assert type(found) is type(there)
        assert found.dtype == there.dtype
        np.testing.assert_allclose(to_numpy(found), expected.transform(X), rtol=tol, atol=tol)
        np.testing.assert_array_equal(to_numpy(there), X)
    if hasattr(model, "inverse_transform") and name not in DROPS:
        back = model.inverse_transform(found)
        assert type(back) is type(there)
        np.testing.assert_allclose(to_numpy(back), X, atol=1e3 * tol)
    if hasattr(model, "coef_to_input"):
        W = expected.transform(X[:2])
        coef = model.coef_to_input(xp.asarray(W))
        assert type(coef) is type(there)
        np.testing.assert_allclose(to_numpy(coef), expected.coef_to_input(W), rtol=tol, atol=tol)
    if hasattr(model, "split"):
        assert [type(part) for part in model.split(found)] == [type(there)] * len(model.views)


@every
def test_whole_numbers_and_other_devices_are_welcome(X, name):
    whole = np.rint(10 * X).astype(int)
    expected = clone(TRANSFORMERS[name]).fit_transform(whole.astype(float))
    found = clone(TRANSFORMERS[name]).fit_transform(array_api_strict.asarray(whole))
    assert found.dtype == array_api_strict.float64
    np.testing.assert_allclose(to_numpy(found), expected, rtol=1e-9, atol=1e-9)
    device = array_api_strict.Device("device1")
    there = clone(TRANSFORMERS[name]).fit_transform(array_api_strict.asarray(X, device=device))
    assert there.device == device


@every
@pytest.mark.parametrize("mean", [0.0, 1e4])
def test_single_precision_is_worked_on_in_double(X, name, mean):
    X = (X + mean).astype(np.float32)
    model, wide = clone(TRANSFORMERS[name]).fit(X), clone(TRANSFORMERS[name]).fit(X.astype(float))
    assert_same(model, wide, rtol=1e-9)
    found = model.transform(X)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wide.transform(X.astype(float)), rtol=1e-5, atol=1e-5)


@every
def test_copies_and_pickles_are_the_same_and_nothing_is_shared_with_the_samples(X, name):
    before = X.copy()
    model = clone(TRANSFORMERS[name]).fit(X)
    kept = [array.copy() for array in learned(model)]
    found = model.transform(X)
    assert not np.shares_memory(found, X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).transform(X), found)
    expected = found.copy()
    found[...] = np.nan
    X += 1.0
    for array, copied in zip(learned(model), kept, strict=True):
        np.testing.assert_array_equal(array, copied)
    other = clone(model)
    assert not hasattr(other, "n_samples_seen_")
    np.testing.assert_allclose(other.fit_transform(before), expected, rtol=1e-12, atol=1e-12)


@every
def test_bad_input_gets_the_sentences_of_the_estimators_and_leaves_what_was_learned(X, name):
    model = clone(TRANSFORMERS[name]).fit(X)
    expected = model.transform(X)
    bad = X.copy()
    kind = "infinity" if model.takes_gaps else "NaN"
    bad[3, 1, 2, 0] = np.inf if model.takes_gaps else np.nan
    for samples in (bad, array_api_strict.asarray(bad)):
        for use in (clone(model).fit, model.transform, model.partial_fit):
            with pytest.raises(ValueError, match=rf"got {kind} at sample 3, entry \(1, 2, 0\)"):
                use(samples)
    for wrong in (X[:, :2], X.transpose(0, 2, 1, 3), array_api_strict.asarray(X[:, :2])):
        for use in (model.transform, model.partial_fit):
            with pytest.raises(ValueError, match=r"Expected samples of shape \(4, 3, 5\) as in fit"):
                use(wrong)
    for factor in () if name in ("resampled", "lengths") else (1e200, 1e-200):  # these two square nothing
        with pytest.raises(ValueError, match="leave the range"):
            clone(model).fit(factor * X)
    with pytest.raises(ValueError, match="weight"):
        clone(model).fit(X, sample_weight=np.zeros(len(X)))
    with pytest.raises(ValueError, match="begins at sample 20"):
        clone(model).fit([(X[:20], None), (bad[:20], None)])
    with pytest.raises(ValueError, match="omplex"):
        clone(model).fit(array_api_strict.asarray(X + 0j))
    np.testing.assert_array_equal(model.transform(X), expected)
    assert model.n_samples_seen_ == len(X)


@every
def test_flat_samples_with_their_shape_are_the_tensors_and_become_tables(X, name):
    model = clone(TRANSFORMERS[name]).fit(X)
    expected = flat(model.transform(X))
    rows = clone(TRANSFORMERS[name]).set_params(tensor_shape=SHAPE).fit(flat(X))
    np.testing.assert_allclose(flat(rows.transform(flat(X))), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(flat(model.transform(flat(X))), expected, rtol=1e-12, atol=1e-12)
    frame = pd.DataFrame(flat(X), index=np.arange(len(X)) + 7).rename(columns=str)
    table = clone(rows).set_output(transform="pandas").fit(frame).transform(frame)
    names = rows.get_feature_names_out()
    assert table.shape == (len(X), len(set(names))) == expected.shape
    assert table.index.tolist() == frame.index.tolist()
    np.testing.assert_allclose(table, expected, rtol=1e-12, atol=1e-12)
    if not name.startswith(("views", "similarities", "lengths")):  # those are flat, whatever comes in
        with pytest.raises(ValueError, match="Expected flat samples for the output"):
            model.set_output(transform="pandas").transform(X)


@every
@pytest.mark.parametrize("cuts", [[], [20, 40]], ids=str)
def test_weights_are_repetitions(X, rng, name, cuts):
    count = rng.integers(0, 4, len(X))
    weighted = in_batches(clone(TRANSFORMERS[name]), X, cuts, count.astype(float))
    assert_same_but_for_scales(weighted, clone(TRANSFORMERS[name]).fit(np.repeat(X, count, axis=0)))


@every
def test_samples_that_do_not_vary_become_finite_numbers(name):
    for value in (0.0, 0.1, -3e7):
        constant = np.full((10, *SHAPE), value, dtype=np.float32)
        model = in_batches(clone(TRANSFORMERS[name]), constant, [3, 4])
        assert np.isfinite(model.transform(constant)).all()
        assert np.isfinite(model.transform(np.random.default_rng(0).standard_normal(constant.shape))).all()


@linear
def test_weights_of_transformed_samples_are_weights_of_samples(X, rng, name):
    model = clone(TRANSFORMERS[name]).fit(X)
    Z = model.transform(X)
    for W in (rng.standard_normal(Z.shape[1:]), rng.standard_normal((3, *Z.shape[1:]))):
        coef = model.coef_to_input(W)
        assert coef.shape == (*W.shape[: W.ndim - 3], *SHAPE)
        offsets = flat(Z) @ W.reshape(-1, Z[0].size).T - flat(X) @ coef.reshape(-1, X[0].size).T
        np.testing.assert_allclose(offsets - offsets[0], 0.0, atol=1e-9 * np.abs(Z).max())
    with pytest.raises(ValueError, match="Expected weights of shape"):
        model.coef_to_input(np.ones(3))


@linear
def test_what_was_transformed_comes_back(X, name):
    model = clone(TRANSFORMERS[name]).fit(X)
    Z = model.transform(X)
    back = model.inverse_transform(Z)
    np.testing.assert_allclose(model.transform(back), Z, atol=1e-10)  # all of it, but for what is dropped
    if name not in DROPS:
        np.testing.assert_allclose(back, X, atol=1e-10)
    np.testing.assert_allclose(flat(model.inverse_transform(flat(Z))), flat(back))
    with pytest.raises(ValueError, match="Expected transformed samples of shape"):
        model.inverse_transform(np.ones((3, 2, 2)))


# --- the contract ----------------------------------------------------------------------------------------------------


class Ranges(TensorTransformer):
    """A transformer as somebody adds one: samples in units of the root of their total variance."""

    def __init__(self, tensor_shape=None):
        self.tensor_shape = tensor_shape

    def attributes_from(self, summary, shape):
        learned = super().attributes_from(summary, shape)
        return {"size_": np.sqrt(np.sum(learned["var_"])), **learned}

    def transform_tensors(self, T):
        return T / self.size_

    def why_not(self, shape, n_samples, positive=False):
        return "" if n_samples > 10 else "there are too few samples"


def test_one_method_or_two_make_a_transformer(X):
    model = Ranges().fit(X)
    np.testing.assert_allclose(model.transform(X), X / np.sqrt(X.var(axis=0).sum()), rtol=1e-12)
    assert vars(model).keys() - {"tensor_shape"} == {
        "sample_shape_",
        "n_features_in_",
        "n_samples_seen_",
        "size_",
        "mean_",
        "var_",
    }
    cluster = Ranges().fit(da.from_array(X, chunks=(13, 2, 3, 5)))
    for other in (in_batches(Ranges(), X, [7, 30]), cluster):
        np.testing.assert_allclose(other.size_, model.size_, rtol=1e-12)
    np.testing.assert_allclose(Similarities(Ranges()).fit_transform(X), Similarities().fit_transform(X), atol=1e-9)
    assert model.suits(SHAPE, 11)
    assert not model.suits(SHAPE, 10)


@every
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_tensors_in_memory_are_learned_from_and_transformed_as_by_fit(X, rng, name, dtype):
    X, weight = X.astype(dtype), rng.uniform(0.1, 2.0, len(X))
    expected = clone(TRANSFORMERS[name]).fit(X, sample_weight=weight)
    model = clone(TRANSFORMERS[name])
    np.testing.assert_array_equal(model.fit_tensors(X, weight), expected.transform(X))
    assert_same(model, expected, rtol=0)
    assert model.output_shape_ == expected.transform(X).shape[1:]
    T = X[:3].astype(float)
    np.testing.assert_allclose(model.transform_tensors(T), model.transform(T), rtol=1e-12, atol=1e-12)


@every
def test_what_was_learned_follows_from_the_summary_of_the_past(X, name):
    model = clone(TRANSFORMERS[name]).fit(X)
    if isinstance(model, Chain):
        return  # it learns nothing but what its transformers do
    again = model.attributes_from(model.past_summary(), model.sample_shape_)
    assert again.keys() <= vars(model).keys()
    for attribute, value in again.items():
        for one, two in zip(
            *(v if isinstance(v, list) else [v] for v in (value, getattr(model, attribute))), strict=True
        ):
            if not isinstance(one, str | tuple | TensorTransformer | None):
                np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9)


@every
def test_samples_are_transformed_in_many_threads_at_once(X, name):
    model = clone(TRANSFORMERS[name]).fit(X)
    expected = model.transform(X)
    before = dict(vars(model))
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(model.transform, [X] * 16):
            np.testing.assert_array_equal(found, expected)
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[attribute] is value for attribute, value in before.items())


@pytest.mark.parametrize(
    ("view", "suited", "unsuited"),
    [
        (Logarithm(), [((5,), 10, True)], [((5,), 10, False)]),
        (ModeWhitener(), [((6, 11), 10, False)], [((7,), 10, False), ((1, 100), 10, False), ((6, 18_000), 128, False)]),
        (ModeWhitener(time_axis=-1), [((4, 100), 10, False)], [((1, 100), 10, False), ((6, 11), 10, False)]),
        (
            SecondOrder(),
            [((100, 200), 100, False)],
            [((6, 11), 10, False), ((100,), 10, False), ((128, 300), 10**5, False)],
        ),
        (SecondOrder(difference=True), [((48, 100), 10, False)], [((49, 100), 10, False)]),
        (SecondOrder(lags=3, lag_step=3), [((16, 40), 10, False)], [((17, 40), 10, False), ((3, 39), 10, False)]),
        (Convolutions(), [((9, 60), 1500, False)], [((10, 60), 1500, False), ((9, 60), 1501, False)]),
        (Convolutions(n_entries=1344), [((4, 60), 1501, False)], [((5, 60), 1501, False), ((4, 60), 1500, False)]),
        (Convolutions(average=True), [((10, 60), 1500, False)], [((9, 60), 1500, False)]),
        (Similarities(), [((7,), 20_000, False)], [((7,), 20_001, False)]),
        (Similarities(SecondOrder(difference=True)), [((48, 100), 10, False)], [((49, 100), 10, False)]),
        (Thresholds(), [((190,), 10, False)], [((600, 1200), 10, False), ((60, 100), 20_000, False)]),
        (TensorStandardScaler(), [((7,), 10**6, False)], []),
    ],
    ids=str,
)
def test_a_transformer_says_which_samples_it_suits(view, suited, unsuited):
    assert all(view.suits(*samples) for samples in suited)
    assert not any(view.suits(*samples) for samples in unsuited)
    assert all(view.why_not(*samples) for samples in unsuited)


# --- TensorStandardScaler --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_mean", [True, False])
@pytest.mark.parametrize("with_std", [True, False])
def test_per_feature_it_is_the_scaler_of_scikit_learn(X, rng, with_mean, with_std):
    weight = rng.uniform(0.1, 3.0, len(X))
    for w in (None, weight):
        ours = TensorStandardScaler(with_mean=with_mean, with_std=with_std).fit(X, sample_weight=w)
        theirs = StandardScaler(with_mean=with_mean, with_std=with_std).fit(flat(X), sample_weight=w)
        np.testing.assert_allclose(flat(ours.transform(X)), theirs.transform(flat(X)), atol=1e-12)
        for name in ("mean_", "var_", "scale_"):
            expected = getattr(theirs, name)
            if expected is not None:
                np.testing.assert_allclose(getattr(ours, name).ravel(), expected, rtol=1e-12)
        if with_mean or with_std:  # theirs forgets the weights otherwise
            np.testing.assert_allclose(ours.n_samples_seen_, theirs.n_samples_seen_)


def test_per_channel_it_knows_one_mean_and_scale_for_each_channel(X):
    scaler = TensorStandardScaler(per=0).fit(X)
    assert scaler.mean_.shape == scaler.scale_.shape == scaler.var_.shape == (4, 1, 1)
    np.testing.assert_allclose(scaler.mean_.ravel(), X.mean(axis=(0, 2, 3)))
    np.testing.assert_allclose(scaler.scale_.ravel(), X.std(axis=(0, 2, 3)))
    np.testing.assert_allclose(scaler.transform(X), (X - scaler.mean_) / scaler.scale_)
    both = TensorStandardScaler(per=(0, 2)).fit(X)
    np.testing.assert_allclose(both.scale_, X.std(axis=(0, 2))[:, None, :])
    whole = TensorStandardScaler("global").fit(X)
    np.testing.assert_allclose(whole.scale_, np.full((1, 1, 1), X.std()))


@every_per
@pytest.mark.parametrize("weighted", [False, True])
def test_batches_do_not_matter(X, rng, per, weighted, monkeypatch):
    weight = rng.uniform(0.1, 2.0, len(X)) * (np.arange(len(X)) % 5 != 2) if weighted else None
    whole = TensorStandardScaler(per).fit(X, sample_weight=weight)
    parts = in_batches(TensorStandardScaler(per), X, [1, 2, 17, 40], weight)
    monkeypatch.setattr(training, "_BLOCK_BYTES", 1000)
    blocks = TensorStandardScaler(per).fit(X, sample_weight=weight)
    for other in (parts, blocks):
        np.testing.assert_allclose(other.mean_, whole.mean_, rtol=1e-12)
        np.testing.assert_allclose(other.var_, whole.var_, rtol=1e-12)
        np.testing.assert_allclose(other.n_samples_seen_, whole.n_samples_seen_)


@given(st.sets(st.integers(1, 59), max_size=6), st.sampled_from(EVERY_PER), st.sampled_from([0.0, 1e6, -1e9]))
def test_a_mean_far_above_the_spread_costs_no_more_than_the_data_lost(cuts, per, mean):
    spread = np.random.default_rng(len(cuts)).standard_normal((60, *SHAPE))
    X = spread + mean
    exact = X - mean  # what rounding has left of the spread, exactly
    scaler = in_batches(TensorStandardScaler(per), X, sorted(cuts))
    expected = TensorStandardScaler(per).fit(exact)
    # A mean is held to eps |mean|; sums of squares without centring would be off by eps mean^2.
    np.testing.assert_allclose(scaler.var_, expected.var_, rtol=1e-12 + 1e-15 * abs(mean))
    np.testing.assert_allclose(scaler.mean_ - mean, expected.mean_, atol=1e-14 + 1e-15 * abs(mean))


@every_per
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_comes_back_in_its_type_and_layout_and_leaves_the_input_alone(X, per, dtype):
    X = X.astype(dtype)
    before = X.copy()
    scaler = TensorStandardScaler(per).fit(X)
    scaled = scaler.transform(X)
    back = scaler.inverse_transform(scaled)
    assert scaled.dtype == back.dtype == dtype
    assert scaled.shape == back.shape == X.shape
    np.testing.assert_array_equal(X, before)
    assert not np.shares_memory(scaled, X)
    np.testing.assert_allclose(back, X, atol=20 * np.finfo(dtype).eps * np.abs(X).max())
    rows = TensorStandardScaler(per, tensor_shape=SHAPE).fit(flat(X))
    np.testing.assert_array_equal(rows.transform(flat(X)), flat(scaled))
    np.testing.assert_array_equal(rows.transform(X), scaled)
    np.testing.assert_array_equal(scaler.transform(flat(X)), flat(scaled))


def test_single_precision_is_centred_in_double():
    X = (np.random.default_rng(0).standard_normal((1000, 3)) + 1e4).astype(np.float32)
    scaled = TensorStandardScaler().fit_transform(X)
    exact = (X.astype(float) - X.astype(float).mean(axis=0)) / X.astype(float).std(axis=0)
    np.testing.assert_allclose(scaled, exact, atol=1e-6)


def test_without_copy_it_works_in_place(X):
    expected = TensorStandardScaler().fit_transform(X)
    own = X.copy()
    scaler = TensorStandardScaler(copy=False).fit(own)
    assert np.shares_memory(scaler.transform(own), own)
    np.testing.assert_array_equal(own, expected)
    frozen = X.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(scaler.transform(frozen), expected)
    np.testing.assert_array_equal(TensorStandardScaler(with_mean=False, with_std=False).fit_transform(X), X)


@every_per
def test_what_does_not_vary_is_not_scaled(X, per):
    constant = np.full((10, *SHAPE), 0.1)
    scaler = in_batches(TensorStandardScaler(per), constant, [3, 4])
    np.testing.assert_array_equal(scaler.scale_, np.ones_like(scaler.scale_))
    np.testing.assert_allclose(scaler.transform(constant), 0.0, atol=1e-15)
    X = X.copy()
    X[:, 1, 2, 3] = 7.0
    scale = TensorStandardScaler().fit(X).scale_
    assert scale[1, 2, 3] == 1.0
    assert np.sum(scale == 1.0) == 1


def test_fit_forgets_and_what_the_two_switches_leave_out_is_none(X):
    scaler = TensorStandardScaler().fit(100.0 + X[:10, :2])
    np.testing.assert_array_equal(scaler.fit(X).mean_, TensorStandardScaler().fit(X).mean_)
    neither = TensorStandardScaler(with_mean=False, with_std=False).fit(X).partial_fit(X)
    assert neither.mean_ is neither.var_ is neither.scale_ is None
    assert neither.n_samples_seen_ == 2 * len(X)
    centring = TensorStandardScaler(with_std=False).fit(X)
    assert centring.scale_ is centring.var_ is None


def test_its_weights_are_those_of_the_samples(X, rng):
    scaler = TensorStandardScaler(per=0).fit(X)
    W = rng.standard_normal(SHAPE)
    offsets = flat(scaler.transform(X)) @ W.ravel() - flat(X) @ scaler.coef_to_input(W).ravel()
    np.testing.assert_allclose(offsets, offsets[0], rtol=1e-9)
    assert scaler.coef_to_input(np.stack([W, W])).shape == (2, *SHAPE)


def test_data_frames_stay_data_frames_and_tensors_cannot_become_any(X):
    frame = pd.DataFrame(flat(X)).rename(columns=str)
    scaler = TensorStandardScaler(tensor_shape=SHAPE).set_output(transform="pandas").fit(frame)
    assert list(scaler.transform(frame).columns) == list(frame.columns)
    scaler = TensorStandardScaler().set_output(transform="pandas").fit(X)
    with pytest.raises(ValueError, match="Expected flat samples for the output"):
        scaler.transform(X)


@pytest.mark.parametrize("per", [3, -4, (0, 3), "mode", 1.5, ("a",)])
def test_a_mode_that_is_not_there_gets_one_sentence(X, per):
    with pytest.raises(ValueError, match="per"):
        TensorStandardScaler(per).fit(X)


# --- ModePCA ---------------------------------------------------------------------------------------------------------


def lost(pca, X):
    """Share of the variance that does not come back."""
    error = X - pca.inverse_transform(pca.transform(X))
    return float(np.sum(error**2) / np.sum((X - X.mean(axis=0)) ** 2))


@pytest.mark.parametrize("n_components", [None, 3, 0.9, (2, None, 0.7)], ids=str)
@pytest.mark.parametrize("n_iter", [0, 2])
def test_components_are_orthonormal_with_a_fixed_sign(n_components, n_iter):
    X = correlated()
    pca = ModePCA(n_components, n_iter=n_iter).fit(X)
    for U, size, count in zip(pca.components_, X.shape[1:], pca.n_components_, strict=True):
        assert U.shape == (count, size)
        np.testing.assert_allclose(U @ U.T, np.eye(count), atol=1e-12)
        assert np.all(U[np.arange(count), np.argmax(np.abs(U), axis=1)] > 0)
    assert pca.transform(X).shape == (len(X), *pca.n_components_)
    for mode in range(3):
        assert pca.explained_variance_[mode].shape == (pca.n_components_[mode],)


def test_all_components_are_a_rotation():
    X = correlated(n=30)
    pca = ModePCA().fit(X)
    Z = pca.transform(X)
    np.testing.assert_allclose(pca.inverse_transform(Z), X, atol=1e-12)
    np.testing.assert_allclose(flat(Z) @ flat(Z).T, flat(X - X.mean(axis=0)) @ flat(X - X.mean(axis=0)).T, atol=1e-10)
    for ratio in pca.explained_variance_ratio_:
        np.testing.assert_allclose(ratio.sum(), 1.0)
        assert np.all(np.diff(ratio) <= 1e-15)


def test_the_covariance_of_a_mode_is_that_of_its_fibres():
    X = correlated(n=40)
    pca = ModePCA().fit(X)
    centred = X - X.mean(axis=0)
    for mode, covariance in enumerate(pca.mode_covariances_):
        fibres = np.moveaxis(centred, mode + 1, 0).reshape(X.shape[mode + 1], -1)
        np.testing.assert_allclose(covariance, fibres @ fibres.T / len(X), atol=1e-12)


def test_of_vectors_it_is_principal_component_analysis():
    X = flat(correlated(shape=(5, 4)))
    ours, theirs = ModePCA(6).fit(X), PCA(6).fit(X)
    np.testing.assert_allclose(np.abs(ours.transform(X)), np.abs(theirs.transform(X)), atol=1e-10)
    np.testing.assert_allclose(ours.explained_variance_ratio_[0], theirs.explained_variance_ratio_)
    assert ModePCA(0.8).fit(X).n_components_ == (PCA(0.8).fit(X).n_components_,)


def test_more_components_lose_less_and_the_loss_is_within_its_bounds():
    X = correlated()
    losses = []
    for count in range(1, 9):
        pca = ModePCA(count).fit(X)
        own = [1.0 - ratio.sum() for ratio in pca.explained_variance_ratio_]
        losses.append(lost(pca, X))
        assert max(own) - 1e-12 <= losses[-1] <= sum(own) + 1e-12
    assert np.all(np.diff(losses) < 1e-12)
    assert losses[0] > 0.5
    assert losses[-1] < 1e-25


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 0.99])
def test_a_share_is_a_promise(share):
    X = correlated()
    pca = ModePCA(share).fit(X)
    assert lost(pca, X) <= 1.0 - share
    assert share > 0.95 or np.prod(pca.n_components_) < np.prod(X.shape[1:])
    own = ModePCA((share, None, 2)).fit(X)
    kept = own.explained_variance_ratio_[0]
    assert kept.sum() >= share > kept[:-1].sum()
    assert own.n_components_[1:] == (7, 2)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("mean", [0.0, 1e6])
def test_batches_do_not_matter_to_directions(rng, weighted, mean, monkeypatch):
    X = correlated(n=90) + mean
    weight = rng.uniform(0.1, 2.0, len(X)) * (np.arange(len(X)) % 5 != 2) if weighted else None
    whole = ModePCA(3).fit(X - mean, sample_weight=weight)
    parts = in_batches(ModePCA(3), X, [1, 2, 17, 40], weight)
    monkeypatch.setattr(training, "_BLOCK_BYTES", 20_000)
    blocks = ModePCA(3).fit(X, sample_weight=weight)
    tol = 1e-9 if mean else 1e-12
    for other in (parts, blocks):
        np.testing.assert_allclose(other.mean_ - mean, whole.mean_, atol=tol)
        for mode in range(3):
            np.testing.assert_allclose(other.mode_covariances_[mode], whole.mode_covariances_[mode], atol=100 * tol)
            np.testing.assert_allclose(other.components_[mode], whole.components_[mode], atol=1000 * tol)
        np.testing.assert_allclose(other.transform(X), whole.transform(X - mean), atol=1e4 * tol)


def test_refinement_loses_no_more():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((100, 6, 5, 4)) * np.exp(rng.standard_normal((6, 5, 4)))  # far from separable
    losses = [lost(ModePCA(2, n_iter=n).fit(X), X) for n in range(4)]
    assert losses[1] < losses[0] - 1e-4
    assert np.all(np.diff(losses) < 1e-12)
    model = ModePCA(2, n_iter=1)
    assert not hasattr(model, "partial_fit")


def test_single_precision_stays_and_the_input_is_left_alone():
    X = correlated().astype(np.float32)
    before = X.copy()
    pca = ModePCA(3).fit(X)
    Z = pca.transform(X)
    assert Z.dtype == pca.inverse_transform(Z).dtype == np.float32
    np.testing.assert_array_equal(X, before)
    wide = ModePCA(3).fit(X.astype(float))
    np.testing.assert_allclose(Z, wide.transform(X.astype(float)), atol=1e-4)


def test_flat_samples_with_their_shape_are_the_tensors():
    X = correlated()
    pca = ModePCA((2, 3, 4)).fit(X)
    rows = ModePCA((2, 3, 4), tensor_shape=X.shape[1:]).fit(flat(X))
    np.testing.assert_array_equal(rows.transform(flat(X)), pca.transform(X))
    Z = pca.transform(X)
    np.testing.assert_array_equal(pca.inverse_transform(flat(Z)), pca.inverse_transform(Z))
    names = pca.get_feature_names_out()
    assert (len(names), names[0], names[-1]) == (24, "modepca0_0_0", "modepca1_2_3")


def test_weights_of_compressed_samples_are_weights_of_the_samples():
    X, y, _ = make_low_rank_regression(300, (9, 8, 7), rank=1, correlation=0.9, random_state=3)
    pipe = make_pipeline(TensorStandardScaler(per=0), ModePCA((5, 4, 4)), TraceNormRegressor(alpha=0.1)).fit(X, y)
    scaler, pca, model = pipe
    W = scaler.coef_to_input(pca.coef_to_input(model.coef_))
    assert W.shape == (9, 8, 7)
    offsets = pipe.predict(X) - flat(X) @ W.ravel()
    np.testing.assert_allclose(offsets, offsets[0], rtol=1e-8)
    labels = np.digitize(y, np.quantile(y, [0.3, 0.6]))
    classes = make_pipeline(TensorStandardScaler(), ModePCA(0.9), TraceNormClassifier()).fit(X, labels)
    W = classes[1].coef_to_input(classes[-1].coef_)
    assert W.shape == (3, 9, 8, 7)
    scores = flat(classes[0].transform(X)) @ flat(W).T
    offsets = classes.decision_function(X) - scores
    np.testing.assert_allclose(offsets, np.broadcast_to(offsets[0], offsets.shape), rtol=1e-8)


@pytest.mark.parametrize("n_components", [0, 1.0, -1, (2, 3), (2, 3, 7), (2, 3, 1.0), (2, 3, "all"), "all"], ids=str)
def test_counts_that_make_no_sense_get_one_sentence(n_components):
    with pytest.raises(ValueError, match="n_components"):
        ModePCA(n_components).fit(correlated(shape=(8, 7, 6)))


# --- ModeWhitener ----------------------------------------------------------------------------------------------------


def mode_covariance(X, mode):
    fibres = np.moveaxis(X - X.mean(axis=0), mode + 1, 0).reshape(X.shape[mode + 1], -1)
    return fibres @ fibres.T / len(X)


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_one_mode_whitened_varies_alike_in_all_directions(X, mode):
    whitener = ModeWhitener(modes=mode, shrinkage=0.0).fit(X)
    C = mode_covariance(whitener.transform(X), mode)
    np.testing.assert_allclose(C, np.trace(C) / len(C) * np.eye(len(C)), atol=1e-9)
    np.testing.assert_allclose(np.trace(C), np.trace(mode_covariance(X, mode)))  # samples keep their size
    half = ModeWhitener(-0.25, modes=mode, shrinkage=0.0).fit(X)
    np.testing.assert_allclose(half.transform(half.transform(X)), whitener.transform(X), atol=1e-10)


def test_the_whitener_is_a_power_of_the_shrunk_covariance(X):
    whitener = ModeWhitener(-0.5, shrinkage=0.3).fit(X)
    for mode, (R, C) in enumerate(zip(whitener.mode_whiteners_, whitener.mode_covariances_, strict=True)):
        np.testing.assert_allclose(C, mode_covariance(X, mode), atol=1e-10)
        shrunk = 0.7 * C / (np.trace(C) / len(C)) + 0.3 * np.eye(len(C))
        np.testing.assert_allclose(R @ shrunk @ R, np.eye(len(C)), atol=1e-12)
        np.testing.assert_allclose(R, R.T, atol=1e-14)
    expected = np.einsum("nijk,ia,jb,kc->nabc", X, *whitener.mode_whiteners_)
    np.testing.assert_allclose(whitener.transform(X), expected, atol=1e-12)
    np.testing.assert_allclose(ModeWhitener(0.0).fit_transform(X), X, atol=1e-12)
    np.testing.assert_allclose(ModeWhitener(shrinkage=1.0).fit_transform(X), X, atol=1e-12)


@pytest.mark.parametrize("factor", [1e-13, 1e6])
def test_units_of_samples_do_not_matter_to_whitening(X, factor):
    expected = factor * ModeWhitener().fit_transform(X)
    np.testing.assert_allclose(ModeWhitener().fit_transform(factor * X), expected, rtol=1e-9, atol=1e-10 * factor)


def test_directions_without_variance_are_left_as_they_are(X):
    X[:, 1] = 5.0
    whitener = ModeWhitener(modes=0, shrinkage=0.0).fit(X)
    np.testing.assert_allclose(whitener.transform(X)[:, 1], 5.0, atol=1e-10)
    np.testing.assert_allclose(whitener.inverse_transform(whitener.transform(X)), X, atol=1e-10)


@pytest.mark.parametrize("time_axis", [1, -2])
def test_time_is_not_whitened(X, time_axis):
    found = ModeWhitener(time_axis=time_axis).fit(X)
    np.testing.assert_allclose(found.transform(X), ModeWhitener(modes=(0, 2)).fit_transform(X), atol=1e-12)
    both = ModeWhitener(modes=(1, 2), time_axis=time_axis).fit_transform(X)
    np.testing.assert_allclose(both, ModeWhitener(modes=2).fit_transform(X), atol=1e-12)


@pytest.mark.parametrize("modes", [3, (0, -4), ("a",)])
def test_modes_that_are_not_there_get_one_sentence(X, modes):
    with pytest.raises(ValueError, match="Expected modes to be modes from 0 to 2"):
        ModeWhitener(modes=modes).fit(X)


# --- Convolutions ----------------------------------------------------------------------------------------------------


@pytest.fixture(name="series")
def walks(rng):
    return np.cumsum(rng.standard_normal((30, 3, 50)), axis=-1)


def test_convolutions_are_shares_of_times_above_thresholds(series):
    view = Convolutions().fit(series)
    Z = view.transform(series).reshape(30, 3, len(view.dilations_), 84, 4)
    assert view.dilations_ == [1, 2, 3, 4, 5, 6]
    waveform = np.full(9, -1.0)
    waveform[[0, 1, 2]] = 2.0  # the first of all choices of three points
    for d, step in enumerate(view.dilations_):
        padded = np.pad(series[7, 1], 4 * step, mode="edge")
        stretched = np.zeros(8 * step + 1)
        stretched[::step] = waveform
        response = np.correlate(padded, stretched, mode="valid")
        expected = [(response > level).mean() for level in view.thresholds_[d, 0, 1]]
        np.testing.assert_allclose(Z[7, 1, d, 0], expected)


def test_convolutions_look_at_pairs_of_channels(series):
    view = Convolutions().fit(series)
    Z = view.transform(series).reshape(30, 3, len(view.dilations_), 84, 4)
    units = (series - series.mean(axis=-1, keepdims=True)) / series.std(axis=-1, keepdims=True)
    # Waveforms 1 and 2 add the next channel and the one after it, 4 and 5 subtract them; channels go round in a circle.
    for w, later, sign in [(1, 1, 1.0), (2, 2, 1.0), (3, 0, 0.0), (4, 1, -1.0), (5, 2, -1.0), (7, 1, 1.0)]:
        pair = series[7].std(axis=-1)[:, None] * (units[7] + sign * np.roll(units[7], -later, axis=0))
        for channel in range(3):
            response = np.correlate(np.pad(pair[channel], 4, mode="edge"), WAVEFORMS[w], mode="valid")
            expected = [(response > level).mean() for level in view.thresholds_[0, w, channel]]
            np.testing.assert_allclose(Z[7, channel, 0, w], expected)


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 20])
def test_convolutions_have_as_few_entries_as_asked_for(channels, rng):
    X = rng.standard_normal((5, channels, 200))
    Z = Convolutions(n_entries=1344).fit_transform(X)[0]
    least = 84 * channels  # one dilation, one threshold
    assert max(least, 1344 - 2 * least) <= Z.size <= max(least, 1344)
    assert Z.size < Convolutions().fit_transform(X)[0].size
    # Fewer thresholds come before fewer dilations, which are not touched where they are given.
    assert Convolutions(n_entries=84 * 8 * channels).fit(X).dilations_ == Convolutions(dilations=8).fit(X).dilations_
    assert len(Convolutions(dilations=3, n_entries=1).fit(X).dilations_) == 3


def test_pairs_of_channels_see_how_they_move_together(rng):
    first = rng.standard_normal((80, 60))
    second = np.where(np.arange(80)[:, None] % 2, 1.0, -1.0) * first + 0.3 * rng.standard_normal((80, 60))
    X, y = np.stack([first, 5.0 * second], axis=1), np.arange(80) % 2
    apart = {}
    for pairs in (False, True):
        Z = Convolutions(pairs=pairs).fit_transform(X)
        apart[pairs] = np.abs(Z[y == 1].mean(axis=0) - Z[y == 0].mean(axis=0)).max()
    assert apart[False] < 0.1 < 0.3 < apart[True]


@pytest.mark.parametrize("factor", [1.0, -3.0, 1e4])
def test_pairs_that_cancel_are_never_above_a_threshold(factor, series):
    X = series[:, [0, 0]] * np.array([1.0, factor])[:, None] + np.array([0.0, 7.0])[:, None]
    view = Convolutions().fit(X)
    Z = view.transform(X).reshape(30, 2, len(view.dilations_), 84, 4)
    cancels = view.layout((2, 50)).pairs[:, 1] == -np.sign(factor)
    assert cancels.sum() == 21
    assert not Z[:, :, :, cancels].any()


def test_two_channels_about_their_average_are_the_same_in_all_units(rng):
    X = rng.standard_normal((40, 2, 60))
    X -= X.mean(axis=1, keepdims=True)  # so that sums of the two are rounding
    expected = Convolutions().fit_transform(X)
    found = Convolutions().fit_transform(X * np.array([1e-6, 3.0])[:, None])
    assert np.mean(np.abs(found - expected)) < 1e-6


def test_convolutions_of_the_mean_are_those_of_the_one_signal_that_all_channels_make(rng):
    X = rng.standard_normal((30, 3, 4, 50))
    view = Convolutions(average=True)
    expected = Convolutions().fit_transform(X.mean(axis=(1, 2))[:, None, :])
    np.testing.assert_allclose(view.fit_transform(X), expected, atol=0.01)
    assert np.mean(view.transform(X) != expected) < 1e-3  # a time that is at a threshold but for rounding
    assert {name.split(",")[0] for name in view.entry_names()[0]} == {"mean"}


def test_channels_about_their_average_have_no_mean_that_could_be_convolved(rng):
    X = 1e3 * rng.standard_normal((30, 12, 50))
    X -= X.mean(axis=1, keepdims=True)
    Z = Convolutions(average=True).fit_transform(X)
    np.testing.assert_array_equal(Z, np.broadcast_to(Z[0], Z.shape))


def test_samples_of_one_shape_and_several_sizes_give_one_threshold_in_any_order(series):
    X = np.concatenate([series[:10], 2.0 * series[:10], 0.5 * series[:10]])
    expected = Convolutions().fit(X)
    for cuts, rows in [([], np.arange(30)[::-1]), ([10], np.arange(30)), ([7, 20], np.arange(30)[::-1])]:
        found = in_batches(Convolutions(), X[rows], cuts)
        np.testing.assert_allclose(found.thresholds_, expected.thresholds_)


def test_rounding_hardly_ever_draws_other_samples(rng):
    X = np.cumsum(rng.standard_normal((60, 4, 100)), axis=-1)
    expected = Convolutions().fit(X).draws_
    for other in (X.astype(np.float32), 1e3 * X.astype(np.float32), X + 100.0):
        assert np.mean(np.abs(Convolutions().fit(other).draws_ - expected) > 1e-6) < 0.1


def test_a_signal_that_rests_but_for_rounding_rests(series):
    numbers = np.arange(1.0, 51.0)
    series[:, 1] = 0.1 * numbers / numbers  # 0.1, and in places the next number
    assert np.ptp(series[0, 1]) > 0
    resting = series.copy()
    resting[:, 1] = 0.1
    np.testing.assert_array_equal(Convolutions().fit_transform(series), Convolutions().fit_transform(resting))


def test_a_channel_that_rests_adds_nothing_to_its_pairs(series):
    series[:, 1] = 3.1
    view = Convolutions().fit(series)
    Z = view.transform(series).reshape(30, 3, len(view.dilations_), 84, 4)
    other = series.copy()
    other[:, 1] = -7.0
    np.testing.assert_array_equal(view.transform(other).reshape(Z.shape), Z)
    assert Z[:, 0, :, 1].any()  # with the channel that rests
    assert not Z[:, 1].any()


def test_a_threshold_of_convolutions_is_a_quantile_of_a_sample(rng):
    series = np.cumsum(rng.standard_normal((40, 2, 200)), axis=-1)
    view = Convolutions(dilations=2).fit(series)
    shares = view.transform(series).reshape(40, 2, 2, 84, 4)
    places = (np.sqrt(5.0) - 1.0) / 2.0 * (np.arange(2 * 84 * 4).reshape(2, 84, 4) + 0.5) % 1.0
    assert np.abs(shares - (1.0 - places)[:, None].swapaxes(0, 1)).min(axis=0).max() < 0.01  # one of 200 times


def test_thresholds_of_convolutions_are_drawn_from_many_samples(rng):
    view = Convolutions(dilations=1).fit(rng.standard_normal((500, 1, 40)))
    assert len(np.unique(view.draws_)) == 64


def test_thresholds_of_convolutions_tell_small_samples_apart_beside_large_ones(rng):
    sizes = np.geomspace(1e-2, 1e2, 60)
    fast, slow = rng.standard_normal((60, 1, 200)), np.repeat(rng.standard_normal((60, 1, 50)), 4, axis=-1)
    fast, slow = sizes[:, None, None] * fast, sizes[:, None, None] * slow
    view = Convolutions().fit(np.concatenate([fast, slow]))
    small = sizes < 0.05
    apart = view.transform(fast[small]).mean(axis=0) - view.transform(slow[small]).mean(axis=0)
    assert np.mean(np.abs(apart) > 0.05) > 0.01  # of all entries


def test_convolutions_see_small_ripples_between_rare_jumps(rng):
    resting = np.zeros((40, 1, 200))
    resting[np.arange(40), 0, rng.integers(20, 180, 40)] = 400.0
    rippled = resting + rng.standard_normal(resting.shape)
    view = Convolutions(dilations=1).fit(np.concatenate([resting, rippled]))
    apart = (view.transform(rippled) - view.transform(resting)).mean(axis=0)
    assert np.mean(np.abs(apart) > 0.2) > 0.1


def test_rounding_does_not_decide_where_signals_rest(rng):
    levels = rng.standard_normal((60, 1, 1)) * 10.0
    resting = np.broadcast_to(levels, (60, 1, 160)).copy()
    resting[:, :, 80:] += rng.standard_normal((60, 1, 1))  # one step: the rest of the time nothing happens
    Z = Convolutions(dilations=1).fit_transform(resting)
    assert np.minimum(Z, 1.0 - Z).max() <= 9 / 160  # while a waveform of nine points passes the step


def test_convolutions_do_not_depend_on_units_and_levels(series):
    expected = Convolutions().fit_transform(series)
    other = series * np.array([1e-6, 3.0, 1e4])[:, None] + np.array([5.0, -2e-3, 0.0])[:, None]
    found = Convolutions().fit_transform(other)
    assert np.mean(np.abs(found - expected)) < 1e-6  # a value at its threshold may change sides by rounding


def test_signals_that_do_not_vary_are_never_above_a_threshold(series):
    series[:, 1] = 3.1
    view = Convolutions().fit(series)
    assert not view.transform(series).reshape(30, 3, -1)[:, 1].any()
    assert np.isfinite(view.transform(np.full_like(series, 0.1))).all()


def test_long_signals_are_looked_at_in_steps(rng):
    slow = np.cumsum(rng.standard_normal((20, 1, 1000)), axis=-1)
    view = Convolutions(dilations=1)
    shares = view.fit_transform(slow) * 250  # every fourth of 1,000 times
    np.testing.assert_allclose(shares, np.round(shares), atol=1e-9)


def test_what_convolutions_expect_of_samples(rng):
    with pytest.raises(ValueError, match="Expected samples with a time axis"):
        Convolutions("auto").fit(rng.standard_normal((5, 3, 4)))
    with pytest.raises(ValueError, match="time_axis"):
        Convolutions(3).fit(rng.standard_normal((5, 3, 4)))


# --- Similarities ----------------------------------------------------------------------------------------------------


def similarities(samples, landmarks, kernel="exponential", scaling=True, width=1.0):
    """Compare rows with landmarks, entry by entry; 1e-6 is what squared distances are softened by."""
    scale = landmarks.std(axis=0) if scaling else 1.0
    unit = np.sqrt((landmarks / scale).var(axis=0).sum())
    squares = (cdist(samples / scale, landmarks / scale) / unit / width) ** 2 + 1e-6
    return np.exp(-squares if kernel == "gaussian" else -np.sqrt(squares))


KERNELS = [
    {},
    {"kernel": "gaussian"},
    {"scaling": False, "width": 0.5},
    {"kernel": "gaussian", "scaling": False, "width": 3.0},
]
every_kernel = pytest.mark.parametrize("options", KERNELS, ids=str)


@every_kernel
def test_scalar_products_of_transformed_samples_are_their_similarities(X, options):
    train, new = X[:40], X[40:]
    view = Similarities(**options).fit(train)
    Z = view.transform(train)
    assert Z.shape == (40, 500)
    assert not np.any(Z[:, 40:])  # so that as many entries come of fewer samples, such as those of a fold
    np.testing.assert_allclose(Z @ Z.T, similarities(flat(train), flat(train), **options), atol=1e-5)
    # Samples that are no landmarks are known by the part of them that landmarks show, to the root of the jitter.
    np.testing.assert_allclose(view.transform(new) @ Z.T, similarities(flat(new), flat(train), **options), atol=1e-3)
    found = view.transform(new)[:, :40] @ np.linalg.inv(view.whitener_[:40]).T
    np.testing.assert_allclose(found, similarities(flat(new), flat(view.landmarks_), **options), atol=1e-9)


@pytest.mark.parametrize("kernel", ["exponential", "gaussian"])
def test_samples_that_are_almost_the_same_are_no_trouble(X, rng, kernel):
    close = np.concatenate([X[:20], X[:20] + 1e-9 * rng.standard_normal((20, *SHAPE))])
    for samples, width in [(close, 1.0), (X, 1e3), (X, 1e9)]:
        Z = Similarities(kernel=kernel, width=width).fit_transform(samples)
        expected = similarities(flat(samples), flat(samples), kernel=kernel, width=width)
        np.testing.assert_allclose(Z @ Z.T, expected, atol=1e-5)


@every_kernel
def test_ridge_regression_on_similarities_is_kernel_ridge_regression(X, rng, options):
    train, new, y = X[:40], X[40:], rng.standard_normal((40, 2))
    view = Similarities(**options).fit(train)
    found = Ridge(0.1, fit_intercept=False).fit(view.transform(train), y).predict(view.transform(new))
    kernel = KernelRidge(0.1, kernel="precomputed").fit(similarities(flat(train), flat(train), **options), y)
    expected = kernel.predict(similarities(flat(new), flat(train), **options))
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert np.abs(expected).max() > 0.1


@every_kernel
def test_of_many_samples_a_few_landmarks_show_what_they_can(X, options):
    view = Similarities(**options, n_landmarks=15).fit(X)
    landmarks = flat(view.landmarks_)
    C, K = (similarities(rows, landmarks, **options) for rows in (flat(X), landmarks))
    expected = C @ np.linalg.solve(K + 1e-6 * np.eye(15), C.T)  # as Nystrom's method has it
    Z = view.transform(X)
    assert Z.shape == (60, 15)
    np.testing.assert_allclose(Z @ Z.T, expected, atol=1e-8)


def test_landmarks_are_training_samples_drawn_all_over(rng):
    X = rng.standard_normal((3000, 4, 3))
    view = Similarities(n_landmarks=300).fit(X)
    rows = {row.tobytes() for row in flat(X)}
    assert all(row.tobytes() in rows for row in flat(view.landmarks_))
    assert np.all(np.diff(view.draws_) > 0)
    assert 0.0 <= view.draws_[0]
    assert 0.05 < view.draws_[-1] < 0.15  # the lowest tenth of numbers
    # No nearer to each other, and to one end of an entry, than chance would have it.
    assert np.abs(view.landmarks_.mean(axis=0)).max() < 4.0 / np.sqrt(300)
    np.testing.assert_allclose(view.landmarks_.std(axis=0), 1.0, atol=0.2)


def lowest(X, view):
    """List the numbers that landmarks should have: each sample has one of its own, and repeated samples count once."""
    rows = {tuple(row) for row in flat(X).tolist()}
    alone = [float(Similarities().fit(np.reshape(row, (1, *X.shape[1:]))).draws_[0]) for row in rows]
    return sorted(alone)[: view.n_landmarks]


@given(st.integers(0, 99), st.sets(st.integers(1, 39), max_size=4), st.sampled_from([1, 7, 20, 500]), st.booleans())
def test_landmarks_do_not_depend_on_order_batches_blocks_and_repetitions(seed, cuts, n_landmarks, coarse):
    rng = np.random.default_rng(seed)
    # Of so few numbers many samples are equal, or of one shape, or constant.
    X = rng.integers(-1, 2, (40, 2, 2)) * 2.0 if coarse else rng.standard_normal((40, 2, 2))
    view = Similarities(n_landmarks=n_landmarks)
    whole = clone(view).fit(X)
    np.testing.assert_array_equal(whole.draws_, lowest(X, view))
    chosen = {tuple(row) for row in flat(whole.landmarks_).tolist()}
    assert len(chosen) == len(whole.landmarks_)
    assert chosen <= {tuple(row) for row in flat(X).tolist()}
    other = in_batches(clone(view), X[rng.permutation(40)], sorted(cuts))
    repeated = clone(view).fit(rng.permutation(np.repeat(X, rng.integers(1, 5, 40), axis=0)))
    for found in (other, repeated):
        for name in ("landmarks_", "draws_", "mean_", "scale_", "whitener_"):
            np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))


def test_of_many_samples_of_one_shape_landmarks_are_drawn_all_over(rng):
    X = rng.standard_normal((2000, 2))  # two entries are alike in shape up to the sign
    view = Similarities(n_landmarks=200).fit(X)
    assert np.abs(view.landmarks_.mean(axis=0)).max() < 1.2  # one of the two shapes may be drawn first
    assert view.landmarks_.std(axis=0).min() > 0.6


@pytest.mark.parametrize(
    ("name", "factor", "offset"),
    [
        ("similarities", 3e4, 0.0),
        ("similarities", 1e-9, 0.0),
        ("similarities", 1.0, 100.0),
        ("similarities", 0.01, -0.3),
        ("similarities of second order", 3e4, 0.0),  # to which means belong: an offset is another signal
        ("similarities of second order", 1e-9, 0.0),
    ],
)
def test_similarities_do_not_depend_on_units_and_an_offset(X, name, factor, offset):
    expected, found = (clone(TRANSFORMERS[name]).fit(samples) for samples in (X, factor * X + offset))
    np.testing.assert_allclose(found.draws_, expected.draws_)
    np.testing.assert_allclose(found.landmarks_, factor * expected.landmarks_ + offset)
    np.testing.assert_allclose(found.transform(factor * X + offset), expected.transform(X), atol=1e-7)


@pytest.mark.parametrize("kernel", ["exponential", "gaussian"])
@pytest.mark.parametrize("scaling", [True, False])
def test_samples_of_one_shape_and_constant_ones_are_welcome_in_any_order(X, rng, kernel, scaling):
    sizes = np.concatenate([X[:10], 2.0 * X[:10], 0.5 * X[:10], X[:10] + 7.0])
    constant = np.broadcast_to(np.arange(10.0)[:, None, None, None], (10, *SHAPE))
    samples = np.concatenate([sizes, constant, constant[:3], np.zeros((1, *SHAPE))])
    for n_landmarks, count in [(500, 50), (45, 45), (4, 4)]:
        view = Similarities(kernel=kernel, scaling=scaling, n_landmarks=n_landmarks)
        whole = clone(view).fit(samples)
        assert len(whole.draws_) == count
        expected = whole.transform(samples)
        assert np.isfinite(expected).all()
        for rows in (np.arange(54)[::-1], rng.permutation(54)):
            found = in_batches(clone(view), samples[rows], [11, 30])
            np.testing.assert_array_equal(found.landmarks_, whole.landmarks_)
            np.testing.assert_allclose(found.transform(samples), expected, atol=1e-9)
    assert np.all(Similarities().fit(constant).draws_ == 1.0)
    assert np.count_nonzero(Similarities().fit(samples).draws_ == 1.0) == 10


def test_entries_that_do_not_vary_do_not_count(X):
    for value in (0.0, 0.1, -3e7):  # of which rounded means may be another number
        X[:, 1, 2, 3] = value
        view = Similarities().fit(X)
        expected = similarities(np.delete(flat(X), 28, axis=1), np.delete(flat(view.landmarks_), 28, axis=1))
        plain = view.transform(X)[:, : len(view.draws_)] @ np.linalg.inv(view.whitener_[: len(view.draws_)]).T
        np.testing.assert_allclose(plain, expected, atol=1e-9)
        other = X.copy()
        other[:, 1, 2, 3] += 1e-9
        np.testing.assert_allclose(view.transform(other), view.transform(X), atol=1e-5)


def test_what_a_transformer_leaves_of_rounding_does_not_count(rng):
    signals = rng.standard_normal((50, 6, 80))
    signals[:, 2] = 3.0  # five entries of its covariance vary by rounding alone
    view = Similarities(SecondOrder(mean=False))
    expected = clone(view).fit_transform(signals)
    np.testing.assert_allclose(clone(view).fit_transform(7.0 * signals), expected, atol=1e-6)


def test_samples_far_from_all_landmarks_are_similar_to_none(X):
    view = Similarities().fit(X)
    for factor in (1e4, 1e100, 1e160):
        np.testing.assert_allclose(view.transform(factor * X), 0.0, atol=1e-9)
    X[3] = 1e200  # constant, so that only its level is out of range
    with pytest.raises(ValueError, match="leave the range"):
        Similarities().fit(X)


@every_kernel
def test_weights_are_weights_of_similarities_to_landmarks(X, rng, options):
    view = Similarities(**options, n_landmarks=15).fit(X)
    K, Z = similarities(flat(X), flat(view.landmarks_), **options), view.transform(X)
    for shape in [(15,), (3, 15), (2, 3, 15)]:
        W = rng.standard_normal(shape)
        weights = view.landmark_weights(W)
        assert weights.shape == shape
        # Weights of neighbours cancel: what is left of them has fewer digits.
        np.testing.assert_allclose(weights @ K.T, W @ Z.T, atol=1e-8)


@pytest.mark.parametrize("transformer", [None, SecondOrder(keep=1)], ids=str)
@pytest.mark.parametrize("scaling", [True, False])
def test_weights_and_patterns_of_entries_are_those_of_the_landmarks(X, rng, transformer, scaling):
    view = Similarities(transformer, scaling=scaling, n_landmarks=15).fit(X)
    entries, shape = view.landmarks_, SHAPE
    if transformer is not None:
        entries, shape = clone(transformer).fit(X).transform(view.landmarks_), (3, 5, 5)
    W = rng.standard_normal((2, 15))
    centred = flat(entries) - flat(entries).mean(axis=0)
    square = centred.var(axis=0) * centred.shape[1] if scaling else centred.var(axis=0).sum()
    weights, patterns = view.entry_weights(W), view.entry_patterns(W)
    assert weights.shape == patterns.shape == (2, *shape)
    np.testing.assert_allclose(flat(weights), view.landmark_weights(W) @ (centred / square), atol=1e-8)
    scores = view.transform(view.landmarks_) @ W.T
    expected = (scores - scores.mean(axis=0)).T @ centred / 15
    np.testing.assert_allclose(flat(patterns), expected, atol=1e-5)  # to the jitter
    assert view.entry_weights(W[0]).shape == view.entry_patterns(W[0]).shape == shape


def test_entries_of_a_linear_problem_are_read_from_similarities(rng):
    X = rng.standard_normal((300, 4, 3))
    y = X[:, 1, 2] - X[:, 3, 0]
    view = Similarities(kernel="gaussian", width=3.0).fit(X)
    coef = Ridge(1e-2, fit_intercept=False).fit(view.transform(X), y).coef_
    expected = np.zeros((4, 3))
    expected[1, 2], expected[3, 0] = 1.0, -1.0
    for found in (view.entry_weights(coef), view.entry_patterns(coef)):
        assert np.sum(found * expected) / np.linalg.norm(found) / np.sqrt(2.0) > 0.97


@pytest.mark.parametrize("use", ["landmark_weights", "entry_weights", "entry_patterns"])
def test_weights_of_other_landmarks_get_one_sentence(X, use):
    view = Similarities(n_landmarks=15).fit(X)
    for wrong in (np.ones(14), np.ones((15, 2)), 1.0):
        with pytest.raises(ValueError, match="Expected weights whose last axis has 15 numbers"):
            getattr(view, use)(wrong)
    with pytest.raises(NotFittedError):
        getattr(Similarities(), use)(np.ones(15))


@every_kernel
def test_similarities_of_a_transformer_are_those_of_what_it_returns(X, options):
    train, new, own = X[:40], X[40:], SecondOrder(keep=1)
    view = Similarities(own, **options).fit(train)
    assert not hasattr(own, "reference_")  # a copy is fitted
    pipeline = make_pipeline(clone(own), Similarities(**options)).fit(train)
    # The landmarks are the same samples, drawn in another order: scalar products do not depend on it.
    for samples, atol in [(train, 1e-8), (new, 1e-7)]:
        found = view.transform(samples) @ view.transform(train).T
        np.testing.assert_allclose(found, pipeline.transform(samples) @ pipeline.transform(train).T, atol=atol)
    few = clone(view).set_params(n_landmarks=15).fit(train)
    rows = [flat(pipeline[0].transform(samples)) for samples in (new, few.landmarks_)]
    found = few.transform(new) @ np.linalg.inv(few.whitener_).T
    np.testing.assert_allclose(found, similarities(*rows, **options), atol=1e-9)


def test_parameters_of_the_transformer_are_set_by_name(X):
    view = Similarities(SecondOrder(keep=1)).set_params(transformer__keep=0)
    assert view.get_params()["transformer__keep"] == 0
    assert view.fit(X).transformers_[0].keep == 0
    assert Similarities().fit(X).transformers_ == []


def test_a_failure_of_the_transformer_leaves_what_was_learned(X):
    view = Similarities(SecondOrder(keep=1)).fit(X)
    expected = view.transform(X)
    with pytest.raises(ValueError, match="keep"):
        view.set_params(transformer__keep=2).fit(X)
    np.testing.assert_array_equal(view.transform(X), expected)


def test_similarities_learn_what_is_inside_of_what(rng):
    X = rng.standard_normal((600, 3, 2))
    y = (X**2).sum(axis=(1, 2)) > 5.3
    train, new = slice(0, 300), slice(300, 600)
    linear = TraceNormClassifier(alpha=1e-3).fit(X[train], y[train]).score(X[new], y[new])
    for kernel in ("exponential", "gaussian"):
        model = make_pipeline(Similarities(kernel=kernel, n_landmarks=100), TraceNormClassifier(alpha=1e-3))
        assert model.fit(X[train], y[train]).score(X[new], y[new]) > 0.8 > 0.65 > linear


@pytest.mark.parametrize(
    "options",
    [
        {"transformer": StandardScaler()},
        {"transformer": "second_order"},
        {"kernel": "linear"},
        {"width": 0.0},
        {"width": -1.0},
        {"width": "auto"},
        {"scaling": "yes"},
        {"n_landmarks": 0},
        {"n_landmarks": 2.5},
        {"tensor_shape": 3},
    ],
    ids=str,
)
def test_parameters_of_similarities_that_cannot_be_are_refused(X, options):
    (name,) = options
    for learn in (Similarities(**options).fit, Similarities(**options).partial_fit):
        with pytest.raises(ValueError, match=rf"^The '{name}' parameter of Similarities must be "):
            learn(X)


# --- SecondOrder -----------------------------------------------------------------------------------------------------


@pytest.fixture(name="signals")
def mixed_signals(rng):
    """Return 40 samples of five mixed channels and 90 times."""
    mixing = rng.standard_normal((5, 5))
    return mixing @ (rng.standard_normal((40, 5, 90)) * np.exp(0.5 * rng.standard_normal((40, 5, 1)))) + 2.0


def scm(X, shrinkage):
    C = np.cov(X, bias=True)
    return (1 - shrinkage) * C + shrinkage * np.trace(C) / len(C) * np.eye(len(C))


def with_means(signals, shrinkage):
    """Put the means beside covariances of pyriemann."""
    means = signals.mean(axis=-1, keepdims=True)
    turned = means.transpose(0, 2, 1)
    if shrinkage == "oas":
        C = covariances(signals, estimator="oas")
    else:
        C = np.stack([scm(one, shrinkage) for one in signals])
    return np.block([[C + means @ turned, means], [turned, np.ones((len(signals), 1, 1))]])


@pytest.mark.parametrize(
    "copies", [{}, {"lags": 3}, {"lags": 2, "lag_step": 4}, {"difference": True, "lags": 1}], ids=str
)
def test_it_is_the_tangent_space_of_pyriemann_at_the_arithmetic_mean(signals, copies):
    view = SecondOrder(mean=False, **copies).fit(signals)
    delays = [lag * copies.get("lag_step", 1) for lag in range(1, 1 + copies.get("lags", 0))]
    repeated = TimeDelayCovariances(delays)
    moving = np.concatenate([signals[..., 1:], np.diff(signals)], axis=1) if "difference" in copies else signals
    repeated.transform(moving)
    longer = repeated.Xtd_[..., max(delays, default=0) :]  # pyriemann lets the end follow the beginning
    C = covariances(longer, estimator="oas")
    np.testing.assert_allclose(view.reference_, C.mean(axis=0), atol=1e-10)
    found = view.transform(signals)
    np.testing.assert_allclose(found, log_map_riemann(C, C.mean(axis=0)), atol=1e-10)
    upper = np.triu_indices(found.shape[-1])
    weights = np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0))
    np.testing.assert_allclose(found[:, *upper] * weights, tangent_space(C, C.mean(axis=0)), atol=1e-10)
    alone = SecondOrder(mean=False, reference=None, **copies).fit_transform(signals)
    np.testing.assert_allclose(alone, log_map_riemann(C, np.eye(C.shape[-1])), atol=1e-10)


@pytest.mark.parametrize("shrinkage", ["oas", 0.0, 0.3])
def test_means_stand_next_to_the_covariance(signals, shrinkage):
    view = SecondOrder(shrinkage=shrinkage).fit(signals)
    M = with_means(signals, shrinkage).mean(axis=0)
    np.testing.assert_allclose(view.reference_, M, atol=1e-10)
    np.testing.assert_allclose(view.unit_**2, np.mean(np.diagonal(M)[:-1]))
    S = with_means(signals / view.unit_, shrinkage)
    np.testing.assert_allclose(view.transform(signals), log_map_riemann(S, S.mean(axis=0)), atol=1e-10)
    np.testing.assert_allclose(view.whitener_ @ M @ view.whitener_.T, np.eye(6), atol=1e-10)


@pytest.mark.parametrize("scaling", [False, True])
def test_levels_that_drift_count_up_to_the_share_that_is_asked_for(signals, rng, scaling):
    within = signals.var(axis=-1).mean(axis=0)
    levels = rng.standard_normal((len(signals), 5, 1)) * np.sqrt(within)[:, None]
    signals = signals - signals.mean(axis=-1, keepdims=True)
    drifting = signals + 30.0 * (levels - levels.mean(axis=0))
    view = SecondOrder(mean=0.1, scaling=scaling).fit(drifting)
    scale = np.sqrt(within) if scaling else np.ones(5)
    apart = view.mean_scale_ * drifting.mean(axis=-1) / scale
    np.testing.assert_allclose(apart.var(axis=0).mean(), 0.1 * np.mean(within / scale**2))
    # Any larger drift gives the same, and a small one is left as it is.
    more = SecondOrder(mean=0.1, scaling=scaling).fit_transform(drifting + 60.0 * (levels - levels.mean(axis=0)))
    np.testing.assert_allclose(view.transform(drifting), more, atol=1e-8)
    little = signals + 0.01 * levels
    small = SecondOrder(mean=0.1, scaling=scaling).fit_transform(little)
    np.testing.assert_array_equal(small, SecondOrder(scaling=scaling).fit_transform(little))


def test_levels_and_scales_are_those_of_all_chunks(signals):
    drifting = signals + 5.0 * np.arange(len(signals))[:, None, None]
    chunks = da.from_array(drifting, chunks=(7, 5, 90))
    here, there = (SecondOrder(mean=0.1, scaling=True).fit(X) for X in (drifting, chunks))
    assert here.mean_scale_ < 0.1
    np.testing.assert_allclose(there.mean_scale_, here.mean_scale_)
    np.testing.assert_allclose(there.channel_scale_, here.channel_scale_)


@pytest.mark.parametrize("mean", [True, False, 0.05])
@pytest.mark.parametrize("factor", [1e-13, 1e-6, 1e9])
def test_units_of_signals_do_not_matter(signals, mean, factor):
    expected = SecondOrder(mean=mean).fit_transform(signals)
    np.testing.assert_allclose(SecondOrder(mean=mean).fit_transform(factor * signals), expected, atol=1e-9)


def test_a_mixture_of_channels_only_turns_the_result(signals, rng):
    mixing = rng.standard_normal((5, 5))
    before = SecondOrder(mean=False, shrinkage=0.0).fit_transform(signals)
    after = SecondOrder(mean=False, shrinkage=0.0).fit_transform(mixing @ signals)
    np.testing.assert_allclose(np.linalg.eigvalsh(after), np.linalg.eigvalsh(before), atol=1e-9)


def test_modes_are_channels_or_kept_and_time_may_be_anywhere(rng):
    X = rng.standard_normal((30, 3, 40, 2))
    assert SecondOrder(1, keep=2).fit_transform(X).shape == (30, 2, 4, 4)
    kept = SecondOrder(1, keep=2, mean=False).fit_transform(X)
    for band in range(2):
        np.testing.assert_allclose(kept[:, band], SecondOrder(mean=False).fit_transform(X[..., band]), atol=1e-10)
    together = SecondOrder(1, mean=False).fit_transform(X)
    channels = X.transpose(0, 1, 3, 2).reshape(30, 6, 40)
    np.testing.assert_allclose(together, SecondOrder(mean=False).fit_transform(channels), atol=1e-10)


def test_covariances_of_kept_modes_are_the_blocks_of_pyriemann(signals):
    C = block_covariances(signals[:, :4], [2, 2], estimator="oas")
    view = SecondOrder(keep=0, mean=False).fit(signals[:, :4].reshape(40, 2, 2, 90))
    for block in range(2):
        own = slice(2 * block, 2 * block + 2)
        np.testing.assert_allclose(view.reference_[block], C[:, own, own].mean(axis=0), atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("options", [{}, {"mean": False}, {"shrinkage": 0.0}, {"shrinkage": 0.0, "reference": None}])
def test_signals_that_are_degenerate_give_finite_numbers(signals, dtype, options):
    one, silent = signals.copy(), signals.copy()
    one[:, 2] = 3.0
    silent[7] = 0.0
    twin = np.concatenate([signals, signals[:, :1]], axis=1)
    for X in (one, twin, silent, signals[..., :3], signals[..., :1], 1e-13 * one):
        training = X.astype(dtype)
        view = SecondOrder(**options).fit(training)
        for samples in (training, np.zeros_like(training), training * np.arange(1, 1 + X.shape[1])[:, None]):
            assert np.isfinite(view.transform(samples)).all()


def test_directions_in_which_nothing_varies_add_nothing(signals):
    signals[:, 2] = 3.0
    kept = SecondOrder(shrinkage=0.0, mean=False).fit_transform(np.delete(signals, 2, axis=1))
    found = SecondOrder(shrinkage=0.0, mean=False).fit_transform(signals)
    np.testing.assert_allclose(np.delete(np.delete(found, 2, axis=1), 2, axis=2), kept, atol=1e-9)
    np.testing.assert_allclose(found[:, 2], 0.0, atol=1e-9)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"lags": 30, "lag_step": 3}, "Expected at least 91 times for these lags, got 90"),
        ({"time_axis": 2}, "Expected time_axis to be modes from 0 to 1"),
        ({"keep": (0, 1)}, "Expected keep to name other modes than time_axis"),
        ({"shrinkage": 2.0}, "shrinkage"),
    ],
)
def test_options_that_make_no_sense_get_one_sentence(signals, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        SecondOrder(**options).fit(signals)


def test_filters_read_a_weight(signals, rng):
    view = SecondOrder(lags=1).fit(signals)
    W = rng.standard_normal((3, 11, 11))
    values, filters, patterns = view.filters(W)
    assert np.all(np.diff(np.abs(values)) <= 0)
    # To first order, the weight of log(R S R') is that of R S R': the sum of value f f'.
    expected = view.whitener_.T @ ((W + W.transpose(0, 2, 1)) / 2) @ view.whitener_
    np.testing.assert_allclose(np.einsum("kr,kri,krj->kij", values, filters, filters), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(filters @ view.reference_ @ filters.transpose(0, 2, 1), [np.eye(11)] * 3, atol=1e-8)
    np.testing.assert_allclose(patterns, filters @ view.reference_, atol=1e-12)
    assert np.all(patterns.max(axis=-1) >= -patterns.min(axis=-1))
    with pytest.raises(ValueError, match="Expected weights whose last axes are"):
        view.filters(np.ones((4, 4)))


def test_a_source_that_tells_classes_apart_is_found(rng):
    y = np.repeat([0, 1], 60)
    sources = rng.standard_normal((120, 4, 200))
    sources[:, 1] *= np.where(y, 2.5, 1.0)[:, None]
    mixing = rng.standard_normal((4, 4))
    model = make_pipeline(SecondOrder(mean=False), TraceNormClassifier(alpha=0.05)).fit(mixing @ sources, y)
    assert model.score(mixing @ sources, y) == 1.0
    pattern = model[0].filters(model[-1].coef_).patterns[0, 0]
    cosine = pattern @ mixing[:, 1] / np.linalg.norm(pattern) / np.linalg.norm(mixing[:, 1])
    assert abs(cosine) > 0.99


SHAPES = [
    ((64, 256), 1),
    ((2, 3, 128), 2),
    ((40, 32), 1),
    ((100, 3), 0),
    ((6, 11), None),
    ((64, 12, 13), None),
    ((300, 400), None),
    ((20,), 0),
]


@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_time_is_long_and_has_few_channels(shape, axis):
    found, reason = find_time_axis(shape)
    assert found == axis
    assert "can be time" in reason
    X = np.random.default_rng(0).standard_normal((3, *shape))
    if axis is None:
        with pytest.raises(ValueError, match="Expected samples with a time axis"):
            SecondOrder("auto").fit(X)
    else:
        assert SecondOrder("auto").fit(X).time_axis_ == axis


def test_a_mode_that_is_named_is_the_only_one_looked_at():
    assert find_time_axis((3, 100), 0)[0] is None
    assert find_time_axis((3, 100), -1)[0] == 1


# --- Views -----------------------------------------------------------------------------------------------------------


def test_views_are_put_one_after_the_other_and_taken_apart(X):
    white, power = ModeWhitener(), SecondOrder(keep=0)
    views = Views([("raw", None), ("white", white), ("power", power)], view_weights=[1.0, 2.0, 0.5]).fit(X)
    assert not hasattr(white, "mean_")  # copies are fitted
    assert views.view_names_ == ["raw", "white", "power"]
    assert views.view_shapes_ == [SHAPE, SHAPE, (4, 4, 4)]
    Z = views.transform(X)
    parts = views.split(Z)
    alone = [X, white.fit_transform(X), power.fit_transform(X)]
    for part, factor, expected in zip(parts, views.view_factors_, alone, strict=True):
        np.testing.assert_allclose(part, factor * expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose([part.var(axis=0).sum() for part in parts], [1.0, 4.0, 0.25])
    np.testing.assert_allclose(views.scale_**2, [part.sum() for part in views.split(views.var_)])
    np.testing.assert_array_equal(np.concatenate([flat(part) for part in parts], axis=1), Z)
    assert [part.shape for part in views.split(Z[0])] == views.view_shapes_
    assert views.get_feature_names_out()[[0, -1]].tolist() == ["raw__0_0_0", "power__3_3_3"]
    with pytest.raises(ValueError, match="Expected 184 numbers along the last axis"):
        views.split(Z[:, :-1])
    np.testing.assert_array_equal(Views([("raw", None)], scaling=False).fit_transform(X), flat(X))


def test_scales_of_batches_come_close_to_those_of_all_samples(X):
    views = Views([("raw", None), ("power", SecondOrder(keep=0))])
    whole, parts = clone(views).fit(X), in_batches(clone(views), X, [30, 40, 50])
    np.testing.assert_allclose(parts.scale_[0], whole.scale_[0])
    np.testing.assert_allclose(parts.scale_[1], whole.scale_[1], rtol=0.1)


def test_parameters_of_views_are_set_by_name_and_a_failure_is_undone(X):
    views = Views([("raw", None), ("white", ModeWhitener())])
    views.set_params(white__power=-0.25)
    assert views.get_params()["white__power"] == -0.25
    views.fit(X)
    before = [array.copy() for array in learned(views)]
    views.set_params(view_weights=[1.0])
    with pytest.raises(ValueError, match="Expected 2 view_weights above zero"):
        views.partial_fit(2.0 * X)
    for array, kept in zip(learned(views), before, strict=True):
        np.testing.assert_array_equal(array, kept)


@pytest.mark.parametrize(
    "views",
    [[], [("a", 1)], [("a",)], [("a", None), ("a", None)], [("a__b", None)], [("a", StandardScaler())]],
    ids=str,
)
def test_views_that_are_none_get_one_sentence(X, views):
    with pytest.raises(ValueError, match=r"Expected views|Names provided are not unique|must not contain __"):
        Views(views).fit(X)
