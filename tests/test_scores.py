"""Scores read targets and weights as fits do."""

import array_api_strict
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from sklearn.base import clone

from tracelearn import (
    HierarchicalTraceNormClassifier,
    TensorClassifier,
    TensorRegressor,
    TraceNormClassifier,
    TraceNormRegressor,
)

N = 40
X = np.random.default_rng(0).normal(size=(N, 3, 2))
Y = X[:, 0, 1] + 0.1 * np.random.default_rng(1).normal(size=N)
LABELS = np.where(Y > 0, "up", "down")
MODELS = {
    "regressor": (TraceNormRegressor(), Y),
    "classifier": (TraceNormClassifier(), LABELS),
    "tree": (HierarchicalTraceNormClassifier(), LABELS),
    "search of numbers": (TensorRegressor(views=None, cv=2), Y),
    "search of labels": (TensorClassifier(views=None, cv=2), LABELS),
}


@pytest.fixture(params=MODELS, scope="module")
def model_and_targets(request):
    model, y = MODELS[request.param]
    return clone(model).fit(X, y), y


def test_one_number_weighs_all_samples_alike(model_and_targets):
    model, y = model_and_targets
    assert model.score(X, y, 2.0) == pytest.approx(model.score(X, y), abs=1e-15)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda y: (y, np.ones((N, 1))), r"sample_weight of shape \(40,\), got shape \(40, 1\)"),
        (lambda y: (y, [pd.NA, *np.ones(N - 1)]), "NaN at sample 0"),
        (lambda y: (y, ["heavy"] * N), "numbers in sample_weight"),
        (lambda y: (np.ones(N) + 1j, None), "real numbers in y"),
        (lambda y: ([pd.NA, *y[1:]], None), "at sample 0"),
        (lambda y: (None, None), "requires y to be passed"),
    ],
    ids=["column of weights", "missing weight", "text", "complex", "missing target", "no targets"],
)
def test_what_no_fit_would_take_is_refused_in_a_sentence(model_and_targets, change, words):
    model, y = model_and_targets
    with pytest.raises(ValueError, match=words) as refusal:
        model.score(X, *change(y))
    assert str(refusal.value).startswith("Expected ")
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize(
    ("name", "put"),
    [("regressor", np.asarray), ("regressor", array_api_strict.asarray), ("search of numbers", np.asarray)],
)
def test_a_column_of_targets_scores_as_its_numbers(name, put):
    model = clone(MODELS[name][0]).fit(put(X), put(Y))
    assert model.score(put(X), put(Y[:, None])) == model.score(put(X), put(Y)) > 0.9
    with pytest.raises(ValueError, match=r"Expected y of shape \(40,\), as predictions are, got shape \(40, 2\)"):
        model.score(put(X), put(np.stack([Y, Y], axis=1)))


@pytest.mark.parametrize("name", MODELS)
def test_targets_with_coordinates_in_another_order_are_refused(name):
    model, y = MODELS[name]
    model = clone(model)
    samples = xr.DataArray(X, dims=("trial", "channel", "time"), coords={"trial": np.arange(N)})
    targets = xr.DataArray(y, dims=("trial",), coords={"trial": np.arange(N)})
    model.fit(samples, targets)
    assert model.score(samples, targets) > 0.8
    with pytest.raises(ValueError, match="Expected targets in the order of the samples"):
        model.score(samples, targets[::-1])
