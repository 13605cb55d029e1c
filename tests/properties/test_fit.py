"""Whatever is fitted: the answer is finite and proven or warned of, input is never written to, and bits repeat."""

import numpy as np
import pytest
from hypothesis import strategies as st
from properties.inputs import ALPHAS, assert_certified, attempt, bits, datasets, tries

from tracelearn import TraceNormClassifier, TraceNormRegressor
from tracelearn.losses import LOSSES
from tracelearn.penalties import ATOMS, L1, PENALTIES, Latent, Nuclear

pytestmark = pytest.mark.slow

SHARED = {
    "alpha": st.sampled_from(ALPHAS),
    "ridge": st.sampled_from([0.0, 0.0, 0.0, 1e-300, 1e-3, 1.0, 1e10]),
    "penalty": st.sampled_from(
        [*PENALTIES, *ATOMS, 0.5 * Nuclear(0) + 0.1 * L1(), Latent(((1.0, Nuclear(-1)), (0.5, L1())))]
    ),
    "target_mode": st.booleans(),
    "fit_intercept": st.booleans(),
    "solver": st.sampled_from(["auto", "auto", "admm", "newton", "apg", "subspaces"]),
    "max_iter": st.sampled_from([1, 50]),
}
REGRESSORS = st.fixed_dictionaries(
    {**SHARED, "loss": st.sampled_from([name for name in LOSSES if LOSSES[name].for_numbers])}
)
CLASSIFIERS = st.fixed_dictionaries(
    {
        **SHARED,
        "loss": st.sampled_from([name for name in LOSSES if LOSSES[name].for_classes]),
        "class_weight": st.sampled_from([None, "balanced"]),
    }
)


def check(make, data, y, options):
    def fit():
        return make(**options).fit(data.X, y, data.weight)

    model, warned = attempt(fit, data.arrays)
    if model is None:
        return
    assert_certified(model, model.tol, warned)
    # Weights of single precision are so only where that is fine enough for the gap.
    assert model.coef_.dtype in ([np.float32, np.float64] if data.X.dtype == np.dtype("float32") else [np.float64])
    found, _ = attempt(lambda: model.predict(data.X), data.arrays)
    assert found is not None
    assert model.mode_ranks_.max() <= max(model.coef_.shape)  # classes may be a mode too
    again, _ = attempt(fit, data.arrays)
    assert bits(again.coef_, again.intercept_, again.dual_gap_) == bits(model.coef_, model.intercept_, model.dual_gap_)
    if make is TraceNormRegressor:
        assert np.isfinite(found).all()
    else:
        assert set(found) <= set(model.classes_)
        assert np.isfinite(model.decision_function(data.X)).all()
    if LOSSES[options["loss"]].has_probabilities:
        np.testing.assert_allclose(model.predict_proba(data.X).sum(axis=1), 1.0, rtol=1e-5)


AUTO = st.sampled_from([{}, {}, {"alpha": "auto"}])


@tries(150, data=datasets(), options=REGRESSORS, auto=AUTO)
def test_a_regressor_proves_its_answer_or_says_why_not(data, options, auto):
    check(TraceNormRegressor, data, data.y, options | auto)


@tries(150, data=datasets(), options=CLASSIFIERS, auto=AUTO)
def test_a_classifier_proves_its_answer_or_says_why_not(data, options, auto):
    check(TraceNormClassifier, data, data.labels, options | auto)


@tries(40, data=datasets(most=6), options=REGRESSORS, order=st.permutations(["C", "F", "reversed", "strided"]))
def test_where_the_numbers_lie_in_memory_does_not_change_the_prediction(data, options, order):
    from properties.inputs import arrange

    found = []
    for layout in order[:2]:
        X = arrange(np.array(data.X), layout)
        model, _ = attempt(lambda X=X: TraceNormRegressor(**options).fit(X, data.y, data.weight), [X, *data.arrays])
        found.append(None if model is None else model.objective_)
    assert (found[0] is None) == (found[1] is None)
    if found[0] is not None and options["max_iter"] > 1:
        y = data.y.astype(float)
        size = np.mean((y - y.mean() * options["fit_intercept"]) ** 2)  # about that of zero weights, as gaps are
        np.testing.assert_allclose(found[0], found[1], rtol=1e-3, atol=1e-3 * size)
