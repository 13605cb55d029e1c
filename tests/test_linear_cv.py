"""TraceNormRegressorCV and TraceNormClassifierCV: the choice, and the path on all samples."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import GroupKFold, KFold, cross_val_score

from tracelearn import TraceNormClassifier, TraceNormClassifierCV, TraceNormRegressor, TraceNormRegressorCV
from tracelearn.datasets import make_low_rank_regression

X, Y, W = make_low_rank_regression(160, (6, 5, 4), rank=1, random_state=0)
LABELS = np.digitize(Y, np.quantile(Y, [0.4, 0.7]))


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (TraceNormRegressorCV(alphas=8), Y),
        (TraceNormRegressorCV(alphas=8, loss="huber", ridges=[0.0, 0.1]), Y),
        (TraceNormRegressorCV(alphas=8), np.stack([Y, -Y + X[:, 0, 0, 0]], axis=1)),
        (TraceNormRegressorCV(alphas=8, scaling="modes", mode_weights="auto"), Y),
        (TraceNormClassifierCV(alphas=8), LABELS),
        (TraceNormClassifierCV(alphas=8, target_mode=True), LABELS),
        (TraceNormClassifierCV(alphas=8, loss="log_loss"), LABELS > 0),
        (TraceNormClassifierCV(alphas=5, loss="log_loss"), LABELS),
    ],
    ids=["numbers", "huber", "two targets", "scaled", "classes", "shared", "logistic", "multinomial"],
)
def test_every_point_of_the_path_is_proven_and_the_chosen_one_is_the_model(model, y):
    model = clone(model).fit(X, y)
    path = model.path_
    assert np.all(path["gap"] <= model.tol)
    assert np.all(np.diff(model.alphas_) < 0)
    assert model.coef_path_.shape == (len(model.alphas_), *model.coef_.shape)
    chosen = int(np.flatnonzero(model.alphas_ == model.alpha_)[0])
    size = np.abs(model.coef_).max()
    np.testing.assert_allclose(model.coef_path_[chosen], model.coef_, atol=2e-2 * size)
    assert path["score"][chosen] == model.best_score_
    kind = TraceNormRegressor if isinstance(model, TraceNormRegressorCV) else TraceNormClassifier
    names = ("loss", "penalty", "target_mode", "scaling")
    options = {name: getattr(model, name) for name in names} | {"mode_weights": model.mode_weights_}
    alone = kind(float(model.alphas_[2]), ridge=model.ridge_, **options).fit(X, y)
    predicted = model.predict(X, alpha=model.alphas_[2])
    if isinstance(model, TraceNormRegressorCV):
        np.testing.assert_allclose(predicted, alone.predict(X), atol=2e-2 * np.abs(y).max())
    else:
        assert np.mean(predicted == alone.predict(X)) > 0.97


def test_the_path_begins_at_zero_and_gains_ranks_on_the_way_down():
    model = TraceNormRegressorCV(alphas=12).fit(X, Y)
    assert not model.coef_path_[0].any()
    ranks = model.path_["ranks"]
    assert ranks.shape == (12, 3)
    assert not ranks[0].any()
    assert np.all(ranks[1] >= 1)
    assert ranks[-1].sum() > ranks[1].sum()


def test_it_finds_a_better_strength_than_none_and_than_ridge_on_flat_samples():
    tensors, y, _ = make_low_rank_regression(240, (8, 7, 6), rank=1, random_state=1)
    ours = cross_val_score(TraceNormRegressorCV(), tensors, y, cv=KFold(4)).mean()
    flat = cross_val_score(RidgeCV(np.geomspace(1e-2, 1e4, 13)), tensors.reshape(240, -1), y, cv=KFold(4)).mean()
    assert ours > flat + 0.1


def test_one_standard_error_chooses_a_larger_alpha():
    plain = TraceNormRegressorCV().fit(X, Y)
    careful = TraceNormRegressorCV(one_standard_error=True).fit(X, Y)
    assert careful.alpha_ > plain.alpha_
    assert careful.best_score_ >= plain.best_score_ - plain.best_score_se_


def test_samples_of_weight_zero_and_the_order_of_rows_decide_nothing():
    plain = TraceNormRegressorCV(alphas=8).fit(X, Y)
    more = np.concatenate([X, X[:10] + 5.0]), np.concatenate([Y, np.full(10, -999.0)])
    weight = np.repeat([1.0, 0.0], [160, 10])
    weighted = TraceNormRegressorCV(alphas=8).fit(*more, sample_weight=weight)
    np.testing.assert_allclose(weighted.coef_, plain.coef_, atol=1e-6)
    order = np.random.default_rng(0).permutation(160)
    shuffled = TraceNormRegressorCV(alphas=8).fit(X[order], Y[order])
    assert shuffled.alpha_ == pytest.approx(plain.alpha_)
    np.testing.assert_allclose(shuffled.score_path_, plain.score_path_, atol=1e-6)


def test_groups_are_held_out_whole():
    groups = np.arange(160) // 16
    model = TraceNormRegressorCV(alphas=6, cv=GroupKFold(5)).fit(X, Y, groups=groups)
    assert model.score_path_.shape == (6, 5)
    with pytest.raises(ValueError, match="at least two groups"):
        TraceNormRegressorCV(alphas=6).fit(X, Y, groups=np.zeros(160))


def test_confounds_are_regressed_out_and_asked_for_again():
    C = np.random.default_rng(0).normal(size=(160, 2))
    model = TraceNormRegressorCV(alphas=6).fit(X + C[:, :1, None, None], Y + C[:, 1], confounds=C)
    assert model.confound_coef_.shape == (2,)
    with pytest.raises(ValueError, match="Expected 2 confounds"):
        model.predict(X)


def test_an_alpha_that_is_not_on_the_grid_is_refused():
    model = TraceNormRegressorCV(alphas=4).fit(X, Y)
    with pytest.raises(ValueError, match="Expected an alpha of the grid alphas_"):
        model.predict(X, alpha=0.123)


def test_a_stored_model_predicts_and_keeps_a_path_that_was_asked_for():
    model = TraceNormRegressorCV(alphas=4).fit(X, Y)
    stored = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(stored.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="Expected the samples of fit for the path"):
        stored.coef_path_  # noqa: B018
    expected = model.coef_path_
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).coef_path_, expected)


def test_a_scorer_selects():
    model = TraceNormClassifierCV(alphas=6, scoring="roc_auc").fit(X, LABELS > 0)
    assert 0.5 < model.best_score_ <= 1.0
    assert np.all(model.score_path_ <= 1.0)
