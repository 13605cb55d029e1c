"""Scaling and compression add over batches, come back, and agree with scikit-learn where it has the same."""

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from tracelearn import ModePCA, TensorStandardScaler, TraceNormClassifier, TraceNormRegressor
from tracelearn.datasets import make_low_rank_regression
from tracelearn.features import base as preprocessing

SHAPE = (4, 3, 5)
EVERY_PER = ["feature", "global", 0, -1, (0, 2), ()]
every_per = pytest.mark.parametrize("per", EVERY_PER, ids=str)

ARBITRARY = "the check has fewer samples than features: directions without variance are any basis of what is left"
EXPECTED_FAILURES = {"ModePCA()": {"check_sample_weight_equivalence_on_dense_data": ARBITRARY}}


@parametrize_with_checks(
    [
        TensorStandardScaler(),
        TensorStandardScaler("global"),
        TensorStandardScaler(per=0, with_mean=False),
        TensorStandardScaler(with_std=False),
        ModePCA(),
        ModePCA(2),
        ModePCA(0.8, n_iter=1),
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
    monkeypatch.setattr(preprocessing, "_BLOCK_BYTES", 1000)
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


@pytest.mark.parametrize("cuts", [[], [1], [20, 40]])
@every_per
def test_weights_are_repetitions(X, rng, cuts, per):
    count = rng.integers(0, 4, len(X))
    weighted = in_batches(TensorStandardScaler(per), X, cuts, count.astype(float))
    repeated = TensorStandardScaler(per).fit(np.repeat(X, count, axis=0))
    np.testing.assert_allclose(weighted.mean_, repeated.mean_, rtol=1e-11)
    np.testing.assert_allclose(weighted.var_, repeated.var_, rtol=1e-11)


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


@pytest.mark.parametrize("make", [TensorStandardScaler, ModePCA])
def test_bad_input_gets_the_sentences_of_the_estimators(X, make):
    model = make().fit(X)
    bad = X.copy()
    bad[3, 1, 2, 0] = np.nan
    with pytest.raises(ValueError, match=r"got NaN at sample 3, entry \(1, 2, 0\)"):
        make().fit(bad)
    with pytest.raises(ValueError, match=r"Expected samples of shape \(4, 3, 5\) as in fit"):
        model.transform(X[:, :2])
    with pytest.raises(ValueError, match=r"Expected samples of shape \(4, 3, 5\) as in fit"):
        model.partial_fit(X.transpose(0, 2, 1, 3))
    with pytest.raises(ValueError, match="leave the range"):
        make().fit(1e200 * X)
    with pytest.raises(ValueError, match="leave the range"):
        make().fit(1e-200 * X)
    with pytest.raises(ValueError, match="weight"):
        make().fit(X, sample_weight=np.zeros(len(X)))
    with pytest.raises(ValueError, match="Expected weights of shape"):
        model.coef_to_input(np.ones(3))


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
    monkeypatch.setattr(preprocessing, "_BLOCK_BYTES", 20_000)
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


def test_what_is_not_compressed_does_not_come_back():
    pca = ModePCA(2).fit(correlated())
    with pytest.raises(ValueError, match="Expected transformed samples of shape"):
        pca.inverse_transform(np.ones((3, 2, 2)))


@pytest.mark.parametrize("model", [TensorStandardScaler(per=(0, 1)), ModePCA((2, 3, 0.5))])
def test_it_is_copied_and_stored(X, model):
    fitted = clone(model).fit(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).transform(X), fitted.transform(X))
