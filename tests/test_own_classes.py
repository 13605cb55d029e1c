"""A loss and a penalty of the user's own, defined in a script: fitted, certified, saved by nobody's list."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from tracelearn import TensorRegressor, TraceNormClassifier, TraceNormRegressor, load, save, stream
from tracelearn.losses import LOSSES, Loss
from tracelearn.penalties import ATOMS, L1, Atom, Nuclear, Overlap


@pytest.fixture(autouse=True)
def as_they_were():
    """Leave the registries as they were."""
    losses, atoms = dict(LOSSES), dict(ATOMS)
    yield
    for known, before in ((LOSSES, losses), (ATOMS, atoms)):
        known.clear()
        known.update(before)


def asymmetric():
    """Define a loss: squares that weigh positive residuals three times (expectile regression at 3/4)."""

    @dataclass(frozen=True)
    class Asymmetric(Loss):
        name: ClassVar[str] = "asymmetric"
        for_numbers: ClassVar[bool] = True
        is_shift_invariant: ClassVar[bool] = True
        curvature: ClassVar[float | None] = 6.0

        def _weights(self, r):
            return np.where(r < 0, 3.0, 1.0)

        def value(self, y, z):
            return self._weights(z - y) * (z - y) ** 2

        def derivative(self, y, z):
            return 2.0 * self._weights(z - y) * (z - y)

        def curvatures(self, y, z):
            return 2.0 * self._weights(z - y)

        def conjugate(self, y, u):
            return u**2 / (4.0 * self._weights(u)) + u * y

    return Asymmetric


def longest():
    """Define an atom: the Euclidean length of all entries, which is its own dual."""

    @dataclass(frozen=True)
    class Length(Atom):
        name: ClassVar[str] = "length"

        def norms(self, M):
            return np.sqrt(np.sum(M**2, axis=(-2, -1)))

        def dual_norms(self, M):
            return self.norms(M)

        def prox(self, M, threshold):
            length = self.norms(M)
            left = np.maximum(length - threshold, 0.0) / np.where(length > 0, length, 1.0)
            return M * left[..., None, None]

    return Length


@pytest.fixture
def samples(rng):
    X = rng.standard_normal((80, 3, 4))
    return X, X[:, 0] @ rng.standard_normal(4) + 0.5 * rng.standard_normal(80) + 100.0


@pytest.mark.parametrize("solver", ["auto", "admm", "apg"])
def test_an_own_loss_is_certified_and_right(samples, solver):
    X, y = samples
    kind = asymmetric()
    model = TraceNormRegressor(alpha=0.05, loss=kind(), solver=solver, tol=1e-8, max_iter=5000).fit(X, y)
    assert model.dual_gap_ <= 1e-8
    residual = y - model.predict(X)
    assert np.mean(kind().derivative(y, model.predict(X))) == pytest.approx(0.0, abs=1e-9)
    assert np.mean(residual > 0) < 0.5  # predictions lie above the middle
    named = clone(model).set_params(loss="asymmetric").fit(X, y)
    np.testing.assert_array_equal(named.coef_, model.coef_)
    # No weights nearby do better.
    rng = np.random.default_rng(0)
    for _ in range(20):
        W = model.coef_ + 1e-3 * rng.standard_normal(model.coef_.shape)
        other = np.mean(kind().value(y, X.reshape(80, -1) @ W.ravel() + model.intercept_))
        norm = np.linalg.svd(W, compute_uv=False).sum()
        assert other + 0.05 * norm >= model.objective_ - 1e-8


@pytest.mark.parametrize("solver", ["admm", "apg", "newton"])
def test_an_own_atom_is_certified_alone_and_in_sums(samples, solver):
    X, y = samples
    kind = longest()
    alone = TraceNormRegressor(alpha=0.3, penalty=kind(), solver=solver, tol=1e-8, max_iter=5000).fit(X, y)
    assert alone.dual_gap_ <= 1e-8
    # Where W is not zero, the gradient has the direction of W and the length alpha.
    A, b = X.reshape(80, -1) - X.reshape(80, -1).mean(axis=0), y - y.mean()
    w = alone.coef_.ravel()
    gradient = 2.0 * A.T @ (A @ w - b) / 80
    np.testing.assert_allclose(gradient, -0.3 * w / np.linalg.norm(w), atol=1e-3)
    penalty = 0.5 * kind() + 0.3 * Nuclear(0) + 0.1 * L1()
    assert isinstance(penalty, Overlap)
    both = TraceNormRegressor(alpha=0.3, penalty=penalty, solver=solver, tol=1e-7, max_iter=5000).fit(X, y)
    assert both.dual_gap_ <= 1e-7
    named = TraceNormRegressor(alpha=0.3, penalty="length", solver=solver, tol=1e-8, max_iter=5000).fit(X, y)
    np.testing.assert_array_equal(named.coef_, alone.coef_)


def test_an_own_loss_and_an_own_atom_work_together_and_for_blocks_of_samples(samples):
    X, y = samples
    options = {"alpha": 0.1, "loss": asymmetric()(), "penalty": 0.5 * longest()() + L1(), "tol": 1e-8}
    whole = TraceNormRegressor(**options).fit(X, y)
    parts = TraceNormRegressor(**options).fit([(X[:30], y[:30]), (X[30:], y[30:])])
    assert max(whole.dual_gap_, parts.dual_gap_) <= 1e-8
    np.testing.assert_allclose(parts.coef_, whole.coef_, atol=1e-4)


def test_a_stream_with_an_own_atom_goes_on_where_its_class_is_trusted(samples, tmp_path):
    X, y = samples
    kind, batches = longest(), [(X[:30], y[:30]), (X[30:], y[30:])]

    def run(part, **options):
        model = TraceNormRegressor(alpha=0.1, penalty=0.5 * kind() + L1(), tol=1e-8)
        return model, stream(part, model, refresh_samples=10, checkpoint=tmp_path / "run", **options)

    run(batches[:1])
    for trusted in ([], [asymmetric()]):
        with pytest.raises(
            ValueError, match=r"^Expected a checkpoint .*, got .*Length, .*: .*trusted=\[.*\]\.$"
        ) as refusal:
            run(batches, resume=True, trusted=trusted)
        assert "\n" not in str(refusal.value)
    model, report = run(batches, resume=True, trusted=[kind])
    assert (report.resumed_from, report.n_samples) == (30, 80)
    whole = TraceNormRegressor(alpha=0.1, penalty=0.5 * kind() + L1(), tol=1e-8).fit(X, y)
    np.testing.assert_allclose(model.coef_, whole.coef_, atol=1e-4)


@pytest.mark.parametrize("warm_start", [False, True])
def test_a_fitted_model_with_own_classes_is_read_where_they_are_trusted(samples, tmp_path, warm_start):
    X, y = samples
    loss, atom = asymmetric(), longest()
    model = TraceNormRegressor(alpha=0.1, loss=loss(), penalty=0.5 * atom() + L1(), warm_start=warm_start).fit(X, y)
    save(model, tmp_path / "model")
    for trusted in ([], [loss], [atom]):
        with pytest.raises(ValueError, match=r"^Expected a model .*trusted=\["):
            load(tmp_path / "model", trusted=trusted)
    np.testing.assert_array_equal(load(tmp_path / "model", trusted=[loss, atom]).predict(X), model.predict(X))


def test_what_is_for_other_targets_or_no_penalty_is_refused_in_a_sentence(samples):
    X, y = samples
    with pytest.raises(ValueError, match="Expected a loss for classes"):
        TraceNormClassifier(loss=asymmetric()()).fit(X, y > 100.0)
    with pytest.raises(ValueError, match="Expected a penalty among"):
        TraceNormRegressor(penalty=object()).fit(X, y)
    with pytest.raises(ValueError, match="Expected a solver among"):
        TraceNormRegressor(solver="adam").fit(X, y)


def test_an_own_solver_is_a_function_and_what_it_returns_is_certified_as_it_is(samples):
    X, y = samples

    def lazy(problems, *, tol, max_iter, start, on_iteration):
        return problems.begin(start)

    with pytest.warns(ConvergenceWarning):
        model = TraceNormRegressor(alpha=0.01, solver=lazy).fit(X, y)
    assert not model.coef_.any()
    assert model.dual_gap_ > 0.1


def test_a_search_compares_predictions_of_a_loss_by_its_link_whether_its_curvature_is_bounded_or_not():
    bounded = asymmetric()

    @dataclass(frozen=True)
    class Unbounded(bounded):
        name: ClassVar[str] = "unbounded"
        curvature: ClassVar[float | None] = None

    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((80, 3, 4))
        y = X[:, 0] @ rng.standard_normal(4) + 0.5 * rng.standard_normal(80) + 100.0
        chosen = []
        for loss in (bounded(), Unbounded()):
            model = TensorRegressor(loss=loss, alphas=(0.3, 0.1, 0.03), views=None, cv=3, tol=1e-9).fit(X, y)
            chosen.append((model.alpha_, model.best_score_))
        np.testing.assert_allclose(*chosen, atol=1e-6)


def test_a_name_that_is_taken_is_refused_and_nothing_is_replaced():
    before, atoms = dict(LOSSES), dict(ATOMS)
    with pytest.raises(
        ValueError, match=r"^Expected a loss with a name of its own, got 'squared_error', which .*SquaredError"
    ):

        class Mine(Loss):
            name: ClassVar[str] = "squared_error"

    for name in ("nuclear", "overlapped"):
        with pytest.raises(ValueError, match=f"^Expected an atom with a name of its own, got '{name}'"):
            type("MyAtom", (Atom,), {"name": name})
    assert before == LOSSES
    assert atoms == ATOMS


def test_a_class_that_is_defined_once_more_replaces_itself():
    first, second = asymmetric(), asymmetric()
    assert first is not second
    assert LOSSES[second.name] is second
