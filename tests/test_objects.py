"""Estimators take objects where they take names: losses, penalties and solvers, also those of a user."""

from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from tracelearn import TensorRegressor, TraceNormClassifier, TraceNormClassifierCV, TraceNormRegressor
from tracelearn.fitting import loss_named
from tracelearn.losses import LOSSES, Huber, LogLoss, SquaredError
from tracelearn.penalties import ATOMS, L1, Nuclear, as_penalty
from tracelearn.solvers import admm

SHAPE = (3, 2, 4)
rng = np.random.default_rng(1)
X = rng.standard_normal((80, *SHAPE))
y = X[:, 0, 0, 0] - X[:, 1, 1, 2] + 0.3 * rng.standard_normal(80)
labels = np.where(y > 0, "up", "down")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ({"loss": "squared_error"}, {"loss": SquaredError()}),
        ({"loss": "huber"}, {"loss": Huber()}),
        ({"penalty": "latent"}, {"penalty": as_penalty("latent", SHAPE)}),
        ({"penalty": "overlapped", "mode_weights": (1, 0, 0)}, {"penalty": 1.0 * Nuclear(0)}),
        ({"solver": "admm"}, {"solver": admm}),
    ],
    ids=["squared_error", "huber", "latent", "mode weights", "admm"],
)
def test_an_object_is_what_its_name_stands_for(name, found):
    one = TraceNormRegressor(0.05, tol=1e-9, **name).fit(X, y)
    other = TraceNormRegressor(0.05, tol=1e-9, **found).fit(X, y)
    np.testing.assert_allclose(other.coef_, one.coef_, atol=1e-9)
    assert other.objective_ == pytest.approx(one.objective_, rel=1e-12)
    np.testing.assert_allclose(clone(other).fit(X, y).coef_, one.coef_, atol=1e-9)


def test_a_classifier_takes_a_loss_too():
    one, other = (TraceNormClassifier(0.02, loss=loss).fit(X, labels) for loss in ("log_loss", LogLoss()))
    np.testing.assert_array_equal(other.predict_proba(X), one.predict_proba(X))
    with pytest.raises(ValueError, match=r"^Expected"):
        TraceNormRegressor(loss=LogLoss()).fit(X, y)


def test_a_sum_of_terms_is_certified():
    penalty = 0.5 * Nuclear(0) + 0.5 * Nuclear(1) + 0.1 * L1()
    model = TraceNormRegressor(0.1, penalty=penalty, tol=1e-8).fit(X, y)
    W = model.coef_
    value = 0.1 * np.abs(W).sum()
    value += 0.5 * sum(
        np.linalg.svd(np.moveaxis(W, n, 0).reshape(SHAPE[n], -1), compute_uv=False).sum() for n in (0, 1)
    )
    assert model.dual_gap_ <= 1e-8
    assert model.objective_ == pytest.approx(np.mean((y - model.predict(X)) ** 2) + 0.1 * value, rel=1e-9)
    with pytest.raises(ValueError, match="weigh the terms themselves"):
        TraceNormRegressor(penalty=penalty, mode_weights=(1, 1, 1)).fit(X, y)


@dataclass(frozen=True)
class Wide(Huber):
    """A loss of a user: the Huber loss of residuals of another size."""

    delta: float = 2.5


def test_a_subclass_does_not_take_over_a_name():
    assert LOSSES["huber"] is Huber
    assert loss_named("huber", for_classes=False) == Huber()

    class Half(Nuclear):
        """An atom of a user, without a name."""

    assert ATOMS["nuclear"] is Nuclear
    assert Half(0).name == "nuclear"


def test_a_users_own_loss_penalty_and_solver_are_used():
    calls = []

    def watched(problems, **options):
        calls.append(problems.shape)
        return admm(problems, **options)

    model = TraceNormRegressor(0.05, loss=Wide(), solver=watched).fit(X, y)
    assert calls == [SHAPE]
    assert model.dual_gap_ <= 1e-6
    np.testing.assert_allclose(model.coef_, TraceNormRegressor(0.05, loss=Huber(2.5)).fit(X, y).coef_, atol=1e-4)
    search = GridSearchCV(TraceNormRegressor(0.05), {"loss": [Huber(1.0), Wide(), "squared_error"]}, cv=2).fit(X, y)
    assert search.best_params_["loss"] in [Huber(1.0), Wide(), "squared_error"]


def test_a_search_takes_objects():
    by_name = TensorRegressor(alphas=3, cv=2, views=None, loss="huber").fit(X, y)
    found = TensorRegressor(alphas=3, cv=2, views=None, loss=Huber()).fit(X, y)
    np.testing.assert_array_equal(found.coef_, by_name.coef_)
    penalty = 0.5 * Nuclear(0) + 0.1 * L1()
    chosen = TraceNormClassifierCV(alphas=3, cv=2, penalty=penalty).fit(X, labels)
    alone = TraceNormClassifier(chosen.alpha_, penalty=penalty).fit(X, labels)
    np.testing.assert_allclose(chosen.coef_, alone.coef_, atol=1e-4)
