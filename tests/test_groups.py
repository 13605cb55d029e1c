"""Groups of samples are read once for all, and refused in one sentence."""

import numpy as np
import pandas as pd
import pytest

from tracelearn import TensorClassifier, TensorRegressor, TraceNormClassifierCV, TraceNormRegressorCV

X = np.random.default_rng(0).normal(size=(40, 3, 4))
Y = X[:, 0, 1]
SEARCHES = [
    lambda: (TraceNormRegressorCV(alphas=3), Y),
    lambda: (TensorRegressor(views=None), Y),
    lambda: (TraceNormClassifierCV(alphas=3), Y > 0),
    lambda: (TensorClassifier(views=None), Y > 0),
]


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([None, *"abc" * 13], "got none at sample 0"),
        ([*"ab" * 19, np.nan, "c"], "got none at sample 38"),
        (pd.array([1] * 20 + [2] * 19 + [pd.NA]), "at sample 39"),
        (np.arange(40)[:, None] // 8, r"got shape \(40, 1\)"),
        (np.arange(30), r"got shape \(30,\)"),
        (["a", 1] * 20, "got text among others"),
    ],
    ids=["none", "not a number", "pandas", "a column of a table", "too few", "mixed"],
)
def test_groups_that_are_none_are_refused(search, groups, words):
    model, y = search()
    with pytest.raises(ValueError, match=words) as refusal:
        model.fit(X, y, groups=groups)
    assert str(refusal.value).startswith("Expected ")


@pytest.mark.parametrize("search", SEARCHES[:1])
def test_text_and_numbers_name_groups_alike(search):
    _, y = search()
    numbers = np.arange(40) // 4
    names = np.array([f"person {number:02d}" for number in numbers])
    by_number, by_name = (search()[0].fit(X, y, groups=groups) for groups in (numbers, names))
    np.testing.assert_array_equal(by_number.score_path_, by_name.score_path_)
