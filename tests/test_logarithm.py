"""Logarithms of samples whose entries are positive, alone and as a view of the search."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from tracelearn import Logarithm, TensorClassifier, load, save
from tracelearn.datasets import make_epochs
from tracelearn.search.views import views_that_suit


@pytest.fixture
def power():
    return np.exp(np.random.default_rng(0).normal(size=(90, 4, 3)))


def test_it_is_the_logarithm_but_for_entries_far_below_their_mean(power):
    model = Logarithm().fit(power)
    assert_allclose(model.transform(power), np.log(power))
    assert_allclose(model.mean_, np.log(power).mean(axis=0))
    assert_allclose(model.var_, np.log(power).var(axis=0))
    least = model.mean_ - 6 * np.sqrt(model.var_)
    for entry in (1e-300, 0.0, -1.0):
        assert_allclose(model.transform(np.full((1, 4, 3), entry))[0], least)


def test_batches_blocks_and_libraries_end_where_one_fit_does(power):
    import array_api_strict
    import dask.array as da

    whole = Logarithm().fit(power)
    parts = Logarithm().partial_fit(power[:20]).partial_fit(power[20:])
    cluster = Logarithm().fit(da.from_array(power, chunks=(30, 4, 3)))
    there = Logarithm().fit(array_api_strict.asarray(power))
    for other in (parts, cluster, there):
        assert_allclose(other.mean_, whole.mean_, atol=1e-12)
        assert_allclose(other.var_, whole.var_, rtol=1e-10)
    assert_allclose(np.asarray(there.transform(array_api_strict.asarray(power))), np.log(power))


@pytest.mark.parametrize("entry", [0.0, -2.0])
def test_entries_that_have_no_logarithm_are_refused(power, entry):
    power[3, 1, 2] = entry
    with pytest.raises(ValueError, match=f"Expected samples of positive entries for their logarithm, got {entry:g}"):
        Logarithm().fit(power)


def test_flat_samples_stay_flat(power):
    flat = power.reshape(90, 12)
    model = Logarithm(tensor_shape=(4, 3)).fit(flat)
    assert_allclose(model.transform(flat), np.log(flat))
    assert list(model.get_feature_names_out()) == list(clone(model).fit(flat).get_feature_names_out())


def test_the_search_tries_it_where_all_entries_are_positive(tmp_path):
    epochs = make_epochs(400, n_sensors=6, random_state=1)  # power, over many orders of magnitude
    model = TensorClassifier().fit(epochs.X[:200], epochs.y[:200])
    assert "log" in model.view_shares_
    assert "log" in model.views_
    save(model, tmp_path / "model.tracelearn")
    again = load(tmp_path / "model.tracelearn")
    assert_allclose(again.decision_function(epochs.X), model.decision_function(epochs.X))
    centred = TensorClassifier().fit(epochs.X[:200] - 1.0, epochs.y[:200])
    assert "log" not in centred.view_shares_


def test_samples_of_one_mode_have_logarithms_too():
    views, _ = views_that_suit((5,), 100, positive=True)
    assert [name for name, _ in views][:2] == ["raw", "log"]
