"""Synthetic problems have the answers that they claim, and are the same for one seed."""

import numpy as np
import pytest

from tracelearn.arrays.tensors import n_rank
from tracelearn.datasets import make_epochs, make_low_rank_regression, make_rank_tensors


def test_rank_tensors_have_the_rank_that_is_their_target():
    X, y = make_rank_tensors(60, shape=(6, 7, 8), ranks=(1, 4), random_state=0)
    assert set(y) == {1.0, 2.0, 3.0, 4.0}
    # Random factors are independent, so the CP rank is the rank of every unfolding.
    for x, rank in zip(X, y, strict=True):
        assert [n_rank(x, mode, rtol=1e-10) for mode in range(3)] == [rank] * 3


def test_rank_tensors_are_sums_of_products_of_uniform_factors():
    X, y = make_rank_tensors(4000, shape=(2, 2, 2), ranks=(1, 3), random_state=1)
    assert X.min() > 0.0
    assert np.all(X.max(axis=(1, 2, 3)) < y)
    for rank in (1.0, 2.0, 3.0):
        assert X[y == rank].mean() == pytest.approx(rank / 8, rel=0.06)  # each factor has mean one half
        assert np.mean(y == rank) == pytest.approx(1 / 3, abs=0.03)


@pytest.mark.parametrize("shape", [(5,), (4, 5), (4, 5, 3), (3, 2, 4, 3)])
@pytest.mark.parametrize("rank", [1, 2])
def test_regression_weights_have_the_rank_asked_for_and_explain_the_target(shape, rank):
    X, y, W = make_low_rank_regression(50, shape, rank=rank, noise=0.0, random_state=0)
    expected = 1 if len(shape) == 1 else rank
    assert all(n_rank(W, mode, rtol=1e-10) == expected for mode in range(len(shape)))
    np.testing.assert_allclose(y, X.reshape(50, -1) @ W.ravel(), rtol=1e-10, atol=1e-10)


def test_noise_is_relative_to_the_signal():
    X, y, W = make_low_rank_regression(20000, (3, 2), noise=0.5, random_state=0)
    signal = X.reshape(len(X), -1) @ W.ravel()
    assert np.std(y - signal) / np.std(signal) == pytest.approx(0.5, rel=0.03)


def test_neighbours_along_every_mode_have_the_correlation_asked_for():
    X, _, _ = make_low_rank_regression(20000, (3, 4), correlation=0.8, random_state=0)
    assert np.corrcoef(X[:, 0, 0], X[:, 1, 0])[0, 1] == pytest.approx(0.8, abs=0.02)
    assert np.corrcoef(X[:, 0, 1], X[:, 0, 2])[0, 1] == pytest.approx(0.8, abs=0.02)
    assert np.corrcoef(X[:, 0, 0], X[:, 0, 2])[0, 1] == pytest.approx(0.64, abs=0.02)
    assert X.std() == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: make_rank_tensors(5, random_state=seed),
        lambda seed: make_low_rank_regression(5, (2, 3), random_state=seed),
    ],
)
def test_one_seed_gives_one_problem_and_two_seeds_give_two(make):
    first, same, other = make(3), make(3), make(4)
    assert all(np.array_equal(a, b) for a, b in zip(first, same, strict=True))
    assert not np.array_equal(first[0], other[0])


def test_epochs_differ_between_conditions_by_the_tensor_that_is_given_as_truth():
    epochs = make_epochs(1500, n_sensors=8, random_state=0)
    move = epochs.y == "move"
    difference = epochs.X[move].mean(axis=0) - epochs.X[~move].mean(axis=0)
    truth = np.einsum("i,j,k->ijk", *epochs.truth)
    assert np.corrcoef(difference.ravel(), truth.ravel())[0, 1] > 0.98


def test_an_effect_changes_the_epochs_of_its_condition_only():
    plain, strong = (make_epochs(40, n_sensors=4, effect=effect, random_state=0) for effect in (0.0, 8.0))
    ratio = strong.X / plain.X  # both are scaled by their spread, so what is unchanged differs by one factor
    idle = strong.y == "idle"
    assert np.ptp(ratio[idle]) < 1e-9
    assert np.ptp(ratio[~idle]) > 1.0


def test_coordinates_of_epochs_have_the_length_of_their_mode():
    epochs = make_epochs(3, n_sensors=5, random_state=0)
    assert [len(one) for one in (epochs.sensors, epochs.times, epochs.frequencies)] == list(epochs.X.shape[1:])
