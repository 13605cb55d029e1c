"""Confounds are regressed out of training samples alone, wherever the samples are, and of what is held out as learned there."""

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, cross_val_score

from tracelearn import (
    HierarchicalTraceNormClassifier,
    ModeWhitener,
    Moments,
    TensorClassifier,
    TensorRegressor,
    TraceNormClassifier,
    TraceNormClassifierCV,
    TraceNormRegressor,
    TraceNormRegressorCV,
    load,
    save,
    stream,
    to_onnx,
)
from tracelearn.confounds import Regression
from tracelearn.inference import bootstrap, compare, decode_over_time, map_test, permutation_test
from tracelearn.inference.permutation import choose_exchange

SHAPE = (4, 3)


def confounded(n, shape=SHAPE, q=2, seed=0):
    """Samples that confounds move, and targets that follow samples and confounds."""
    rng = np.random.default_rng(seed)
    C = rng.normal(size=(n, q)) + 3.0
    X = rng.normal(size=(n, *shape)) + np.tensordot(C, rng.normal(size=(q, *shape)), 1) + 1.0
    y = X.reshape(n, -1) @ rng.normal(size=int(np.prod(shape))) + 2.0 * C[:, 0] + rng.normal(size=n)
    return X, y, C


def residual(X, C, train, *, centre=True, weight=None):
    """What plain least squares on training samples leaves of all samples."""
    rows, mean = X.reshape(len(X), -1), np.average(C[train], axis=0, weights=weight) if centre else 0.0
    A = np.column_stack([np.ones(len(C)), C]) if centre else C
    root = 1.0 if weight is None else np.sqrt(weight)[:, None]
    slopes = np.linalg.lstsq(A[train] * root, rows[train] * root, rcond=None)[0][-C.shape[1] :]
    return (rows - (C - mean) @ slopes).reshape(X.shape)


EVERY = slice(None)


@pytest.mark.parametrize(
    ("options", "n"),
    [
        ({"alpha": 0.3}, 80),
        ({"alpha": 0.3}, 20),  # moments
        ({"alpha": 0.3, "fit_intercept": False}, 80),
        ({"alpha": 0.3, "scaling": "modes"}, 80),
        ({"alpha": 0.1, "loss": "huber"}, 80),
        ({"alpha": 0.0, "ridge": 0.1}, 80),
    ],
)
def test_a_fit_is_that_of_residuals(options, n):
    X, y, C = confounded(n)
    clean = residual(X, C, EVERY, centre=options.get("fit_intercept", True))
    options = {**options, "tol": 1e-10, "max_iter": 5000}
    ours = TraceNormRegressor(**options).fit(X, y, confounds=C)
    plain = TraceNormRegressor(**options).fit(clean, y)
    np.testing.assert_allclose(ours.coef_, plain.coef_, atol=1e-5)
    np.testing.assert_allclose(ours.predict(X, confounds=C), plain.predict(clean), atol=1e-5)
    np.testing.assert_allclose(ours.patterns_, plain.patterns_, atol=1e-4)


@pytest.mark.parametrize("n", [5, 60])
def test_ridge_regression_of_residuals_is_exact_in_every_form(n):
    X, y, C = confounded(n)  # fewer samples than entries are kept by their coordinates
    clean = residual(X, C, EVERY)
    options = {"alpha": 0.0, "ridge": 0.3, "tol": 1e-14}
    with np.errstate(all="ignore"):
        ours = TraceNormRegressor(**options).fit(X, y, confounds=C)
        rows = clean.reshape(n, -1)
        centred = rows - rows.mean(axis=0)
        wanted = np.linalg.solve(centred.T @ centred / n + 0.3 * np.eye(12), centred.T @ (y - y.mean()) / n)
    np.testing.assert_allclose(ours.coef_.ravel(), wanted, atol=1e-8)
    new, _, K = confounded(9, seed=1)
    offset = y.mean() - rows.mean(axis=0) @ wanted
    slopes = np.linalg.lstsq(C - C.mean(axis=0), X.reshape(n, -1) - X.reshape(n, -1).mean(axis=0), rcond=None)[0]
    cleaned = new.reshape(9, -1) - (K - C.mean(axis=0)) @ slopes
    np.testing.assert_allclose(ours.predict(new, K), cleaned @ wanted + offset, atol=1e-8)


def test_weights_count_samples_in_the_regression_too():
    X, y, C = confounded(60)
    weight = np.random.default_rng(3).integers(1, 4, size=60).astype(float)
    index = np.repeat(np.arange(60), weight.astype(int))
    options = {"alpha": 0.2, "tol": 1e-10, "max_iter": 5000}
    once = TraceNormRegressor(**options).fit(X, y, weight, confounds=C)
    often = TraceNormRegressor(**options).fit(X[index], y[index], confounds=C[index])
    np.testing.assert_allclose(once.coef_, often.coef_, atol=1e-5)
    np.testing.assert_allclose(once.confound_coef_, often.confound_coef_, atol=1e-5)


def test_learning_in_parts_merging_and_forgetting_give_the_model_of_all_samples():
    X, y, C = confounded(90)
    options = {"alpha": 0.2, "tol": 1e-11, "max_iter": 5000, "keep_moments": True}
    whole = TraceNormRegressor(**options).fit(X[:60], y[:60], confounds=C[:60])
    parts = TraceNormRegressor(**options)
    for start in (0, 30):
        own = slice(start, start + 30)
        parts.partial_fit(X[own], y[own], confounds=C[own])
    other = TraceNormRegressor(**options).fit(X[30:60], y[30:60], confounds=C[30:60])
    merged = TraceNormRegressor(**options).fit(X[:30], y[:30], confounds=C[:30]).merge(other)
    back = TraceNormRegressor(**options).fit(X, y, confounds=C).forget(X[60:], y[60:], confounds=C[60:])
    for model in (parts, merged, back):
        np.testing.assert_allclose(model.coef_, whole.coef_, atol=1e-5)
        np.testing.assert_allclose(model.predict(X, C), whole.predict(X, C), atol=1e-5)


def test_samples_on_dask_and_on_disk_give_the_model_of_memory(tmp_path):
    da = pytest.importorskip("dask.array")
    X, y, C = confounded(70)
    options = {"alpha": 0.2, "tol": 1e-11, "max_iter": 5000}
    memory = TraceNormRegressor(**options).fit(X, y, confounds=C)
    np.savez(tmp_path / "epochs.npz", X=X, y=y)
    file = TraceNormRegressor(**options).fit(str(tmp_path / "epochs.npz"), confounds=C)
    chunked, confounds = da.from_array(X, chunks=(16, -1, -1)), da.from_array(C, chunks=(9, -1))
    cluster = TraceNormRegressor(**options).fit(chunked, da.from_array(y, chunks=16), confounds=confounds)
    for model in (file, cluster):
        np.testing.assert_allclose(model.coef_, memory.coef_, atol=1e-6)
        np.testing.assert_allclose(model.confound_coef_, memory.confound_coef_, atol=1e-6)
    lazy = cluster.predict(chunked, confounds=confounds)
    np.testing.assert_allclose(lazy.compute(), memory.predict(X, C), atol=1e-6)
    np.testing.assert_allclose(file.predict(str(tmp_path / "epochs.npz"), confounds=C), memory.predict(X, C), atol=1e-6)


def test_a_search_on_dask_regresses_within_folds_as_one_in_memory():
    da = pytest.importorskip("dask.array")
    X, y, C = confounded(70)
    chunked = da.from_array(X, chunks=(20, -1, -1))
    options = {"alphas": 4, "views": None, "cv": KFold(5)}
    memory = TensorRegressor(**options).fit(X, y, confounds=C)
    cluster = TensorRegressor(**options).fit(chunked, y, confounds=C)
    assert cluster.alpha_ == pytest.approx(memory.alpha_)
    assert cluster.ridge_ == pytest.approx(memory.ridge_)
    np.testing.assert_allclose(cluster.predict(X, C), memory.predict(X, C), atol=1e-2)


@pytest.mark.parametrize("shape", [(4, 3), (9, 8)])  # moments, and coordinates of few samples
def test_a_search_regresses_within_each_training_fold(shape):
    X, y, C = confounded(60 if shape == (4, 3) else 30, shape)
    folds = list(KFold(3).split(X))
    for ridge in (0.1, 1.0):
        options = {"alphas": [0.5, 0.2], "ridges": [ridge]}
        ours = TraceNormRegressorCV(cv=folds, **options).fit(X, y, confounds=C)
        for f, (train, test) in enumerate(folds):
            plain = TraceNormRegressorCV(cv=[(train, test)], **options).fit(residual(X, C, train), y)
            np.testing.assert_allclose(ours.score_path_[:, f], plain.score_path_[:, 0], atol=1e-3)


def test_what_is_held_out_never_enters_a_regression():
    # A confound that explains the held-out samples altogether explains nothing of the training ones, and the other way round.
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4, 3)), np.arange(60) % 2
    folds = [(np.arange(40), np.arange(40, 60))]
    C = rng.normal(size=(60, 1))
    wild = C.copy()
    wild[40:] += 1e3 * rng.normal(size=(20, 1))
    options = {"alphas": [0.1], "ridges": [0.1], "cv": folds}
    tables = [TraceNormClassifierCV(**options).fit(X, y, confounds=one) for one in (C, wild)]
    train = TraceNormClassifier(alpha=0.1, ridge=0.1, tol=1e-9).fit(X[:40], y[:40], confounds=C[:40])
    held = [train.score(X[40:], y[40:], confounds=one[40:]) for one in (C, wild)]
    assert [table.best_score_ for table in tables] == pytest.approx(held)


def test_views_show_samples_first_and_confounds_are_regressed_out_of_what_they_show():
    X, y, C = confounded(80)
    labels = np.where(y > np.median(y), "up", "down")
    model = TensorClassifier(views=[None, ModeWhitener()], alphas=4, cv=3).fit(X, labels, confounds=C)
    assert model.score(X, labels, confounds=C) > 0.7
    scores = C @ model.confound_coef_.ravel() + model.intercept_
    for name, view in model.views_.items():
        shown = X if view is None else view.transform(X)
        scores = scores + shown.reshape(len(X), -1) @ model.coef_by_view_[name].ravel()
    np.testing.assert_allclose(model.decision_function(X, C), scores, atol=1e-8)
    assert model.predict_proba(X, C).shape == (80, 2)


def test_several_classes_and_the_logistic_loss():
    X, y, C = confounded(90)
    labels = np.digitize(y, np.quantile(y, [1 / 3, 2 / 3]))
    clean = residual(X, C, EVERY)
    for loss in ("squared_error", "log_loss"):
        options = {"alpha": 0.02, "loss": loss, "tol": 1e-9}
        ours, plain = TraceNormClassifier(**options).fit(X, labels, confounds=C), TraceNormClassifier(**options)
        plain.fit(clean, labels)
        np.testing.assert_allclose(ours.decision_function(X, C), plain.decision_function(clean), atol=1e-3)
        assert ours.confound_coef_.shape == (3, 2)


def test_a_stream_regresses_confounds_out_of_all_samples_so_far():
    X, y, C = confounded(90)
    parts = [slice(start, start + 30) for start in range(0, 90, 30)]
    options = {"alpha": 0.2, "tol": 1e-10, "max_iter": 5000}
    model, whole = TraceNormRegressor(**options), TraceNormRegressor(**options).fit(X, y, confounds=C)
    report = stream([(X[own], y[own], None, C[own]) for own in parts], model, refresh_samples=30)
    np.testing.assert_allclose(model.predict(X, C), whole.predict(X, C), atol=1e-5)
    first = TraceNormRegressor(**options).fit(X[:30], y[:30], confounds=C[:30])
    left = np.mean((y[30:60] - first.predict(X[30:60], C[30:60])) ** 2)  # predicted before it is learned
    assert report.curve[0].error == pytest.approx(left, rel=1e-4)
    with pytest.raises(ValueError, match="Expected 2 confounds"):
        stream([(X, y, None, C), (X, y)], TraceNormRegressor(**options))


@pytest.mark.parametrize("shape", [(4, 3), (9, 8)])  # moments, and coordinates of few samples
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_path_is_that_of_residuals(shape, fit_intercept):
    X, y, C = confounded(60 if shape == (4, 3) else 30, shape)
    model = TraceNormRegressor(tol=1e-9, max_iter=5000, fit_intercept=fit_intercept)
    options = {"tol": 1e-9, "max_iter": 5000, "fit_intercept": fit_intercept}
    path = TraceNormRegressorCV(alphas=[0.5, 0.2], cv=3, **options).fit(X, y, confounds=C)
    for k, alpha in enumerate(path.alphas_):
        one = clone(model).set_params(alpha=alpha).fit(X, y, confounds=C)
        np.testing.assert_allclose(path.coef_path_[k], one.coef_, atol=1e-3)
        np.testing.assert_allclose(path.predict(X, C, alpha=alpha), one.predict(X, C), atol=1e-3)
        assert path.intercept_path_[k] == pytest.approx(one.intercept_, abs=1e-3)


def test_scikit_learn_routes_confounds_to_fit_and_score():
    X, y, C = confounded(60)
    with sklearn.config_context(enable_metadata_routing=True):
        model = TraceNormRegressor(alpha=0.2).set_fit_request(confounds=True).set_score_request(confounds=True)
        scores = cross_val_score(model, X.reshape(60, -1), y, cv=KFold(3), params={"confounds": C})
    for (train, test), score in zip(KFold(3).split(X), scores, strict=True):
        one = TraceNormRegressor(alpha=0.2).fit(X.reshape(60, -1)[train], y[train], confounds=C[train])
        assert one.score(X.reshape(60, -1)[test], y[test], confounds=C[test]) == pytest.approx(score, abs=1e-4)


def test_other_array_libraries_give_the_same():
    torch = pytest.importorskip("torch")
    X, y, C = confounded(60)
    options = {"alpha": 0.2, "tol": 1e-10, "max_iter": 5000}
    ours = TraceNormRegressor(**options).fit(X, y, confounds=C)
    theirs = TraceNormRegressor(**options).fit(torch.tensor(X), torch.tensor(y), confounds=torch.tensor(C))
    np.testing.assert_allclose(theirs.coef_.numpy(), ours.coef_, atol=1e-5)
    np.testing.assert_allclose(theirs.predict(torch.tensor(X), C).numpy(), ours.predict(X, C), atol=1e-5)


def test_collinear_and_constant_confounds_change_nothing_and_a_feature_that_is_one_gets_no_say():
    X, y, C = confounded(60)
    more = np.column_stack([C, C.sum(axis=1), np.ones(60)])
    options = {"alpha": 0.2, "tol": 1e-10, "max_iter": 5000}
    plain, doubled = (TraceNormRegressor(**options).fit(X, y, confounds=one) for one in (C, more))
    np.testing.assert_allclose(doubled.predict(X, more), plain.predict(X, C), atol=1e-5)
    X = X.copy()
    X[:, 0, 0] = 3.0 * C[:, 0] - 1.0
    found = TraceNormRegressor(**options).fit(X, y, confounds=C)
    assert np.all(np.isfinite(found.predict(X, C)))
    assert found.dual_gap_ <= 1e-10


def test_models_with_confounds_are_saved_and_refused_by_onnx(tmp_path):
    X, y, C = confounded(60)
    model = TraceNormRegressor(alpha=0.2, keep_moments=True).fit(X, y, confounds=C)
    save(model, tmp_path / "model.tracelearn")
    again = load(tmp_path / "model.tracelearn")
    np.testing.assert_array_equal(again.predict(X, C), model.predict(X, C))
    again.partial_fit(X, y, confounds=C)
    pytest.importorskip("onnx")
    with pytest.raises(ValueError, match="fitted with confounds"):
        to_onnx(model)


def test_the_moments_of_residuals_are_a_schur_complement_and_of_any_samples():
    X, y, C = confounded(50)
    rows = X.reshape(50, -1)
    joint = Moments.of(np.column_stack([rows, C]), y)
    regression = Regression.of_joint(joint, 12)
    G = joint.gram
    schur = G[:12, :12] - G[:12, 12:] @ np.linalg.solve(G[12:, 12:], G[12:, :12])
    np.testing.assert_allclose(regression.residual_moments(joint).gram, schur, atol=1e-8)
    new, z, K = confounded(30, seed=5)
    of_new = regression.residual_moments(Moments.of(np.column_stack([new.reshape(30, -1), K]), z))
    explicit = Moments.of(regression.residual(new.reshape(30, -1), K), z)
    for name in ("x_mean", "gram", "cross", "target_sq"):
        np.testing.assert_allclose(getattr(of_new, name), getattr(explicit, name), atol=1e-8)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m, X, y, C: m.fit(X, y, confounds=C[:-1]), r"Expected confounds of shape \(60, n_confounds\)"),
        (lambda m, X, y, C: m.fit(X, y, confounds=np.full(60, "a")), "Expected numbers in confounds"),
        (lambda m, X, y, C: m.fit(X, y, confounds=np.where(C > 3, np.nan, C)), "Expected finite numbers in confounds"),
        (lambda m, X, y, C: m.fit(iter([(X, y)]), confounds=C), "Expected samples whose number is known"),
        (
            lambda m, X, y, C: m.fit(X, y, confounds=C).predict(X),
            "Expected 2 confounds of each sample, as in fit, got none",
        ),
        (lambda m, X, y, C: m.fit(X, y).predict(X, C), "Expected no confounds of each sample, as in fit, got 2"),
        (lambda m, X, y, C: m.fit(X, y, confounds=C).predict(X, C[:5]), r"Expected confounds of shape \(60"),
        (lambda m, X, y, C: m.fit(X, y, confounds=C).partial_fit(X, y), "Expected 2 confounds"),
        (
            lambda m, X, y, C: m.fit(X, y, confounds=C).merge(TraceNormRegressor(keep_moments=True).fit(X, y)),
            "as many confounds",
        ),
    ],
)
def test_bad_confounds_are_refused_in_a_sentence(call, words):
    X, y, C = confounded(60)
    with pytest.raises(ValueError, match=words):
        call(TraceNormRegressor(alpha=0.2, keep_moments=True), X, y, C)


def test_sparse_samples_are_refused():
    sparse = pytest.importorskip("scipy.sparse")
    X, y, C = confounded(60)
    with pytest.raises(ValueError, match="Expected dense samples with confounds"):
        TraceNormRegressor(tensor_shape=SHAPE).fit(sparse.csr_array(X.reshape(60, -1)), y, confounds=C)


# --- tests, intervals, time courses -----------------------------------------------------------------------------------


def labelled(n=60):
    X, y, C = confounded(n)
    return X, (y > np.median(y)).astype(int), C


def cleaned_scores(model, X, y, C, folds):
    """Score each fold after plain least squares on its training samples."""
    found = []
    for train, test in folds:
        clean = residual(X, C, train)
        found.append(clone(model).fit(clean[train], y[train]).score(clean[test], y[test]))
    return found


@pytest.mark.parametrize("options", [{}, {"loss": "log_loss"}, {"class_weight": "balanced"}])
def test_permutations_are_those_of_residuals_within_each_training_fold(options):
    X, y, C = labelled()
    folds = list(KFold(3).split(X))
    model = TraceNormClassifier(alpha=0.05, tol=1e-9, **options)
    found = permutation_test(model, X, y, confounds=C, cv=folds, n_permutations=6, tol=0.0, random_state=0)
    assert found.score == pytest.approx(np.mean(cleaned_scores(model, X, y, C, folds)))
    order = choose_exchange(y, None).draw(60, 6, np.random.default_rng(0))
    null = [np.mean(cleaned_scores(model, X, y[own], C, folds)) for own in order]
    np.testing.assert_allclose(found.null, null, atol=1e-9)


def test_a_search_is_repeated_or_fixed_with_confounds():
    X, y, C = labelled()
    folds = list(KFold(3).split(X))
    search = TensorClassifier(views=None, alphas=4)
    options = {"confounds": C, "cv": folds, "n_permutations": 3, "random_state": 0}
    repeated = permutation_test(search, X, y, **options)
    chosen = clone(search).set_params(cv=folds).fit(X, y, confounds=C)
    assert repeated.score == pytest.approx(chosen.best_score_, abs=0.02)
    fixed = permutation_test(search, X, y, selection="fixed", **options)
    best = chosen.linear_estimator()
    assert fixed.score == pytest.approx(np.mean(cleaned_scores(best, X, y, C, folds)))


def test_a_time_course_is_that_of_residuals_and_so_is_one_by_one():
    X, y, C = labelled()
    folds = list(KFold(3).split(X))
    for model in (TraceNormClassifier(alpha=0.05, tol=1e-9), LogisticRegression()):
        found = decode_over_time(model, X, y, confounds=C, cv=folds)
        for t in range(3):
            wanted = cleaned_scores(model, X[:, :, t], y, C, folds)
            np.testing.assert_allclose(found.scores[:, t], wanted, atol=1e-9)


def test_a_map_and_an_interval_are_those_of_residuals():
    X, y, C = confounded(60)
    clean = residual(X, C, EVERY)
    model = TraceNormRegressor(alpha=0.2, tol=1e-9)
    options = {"n_permutations": 9, "random_state": 0}
    ours, plain = map_test(model, X, y, confounds=C, **options), map_test(model, clean, y, **options)
    np.testing.assert_allclose(ours.map, plain.map, atol=1e-4)
    np.testing.assert_array_equal(ours.p_values, plain.p_values)
    drawn = bootstrap(model, X, y, confounds=C, n_bootstraps=2, random_state=0)
    np.testing.assert_allclose(drawn.coef, model.fit(X, y, confounds=C).coef_, atol=1e-4)
    weight = np.bincount(np.random.default_rng(0).integers(60, size=60), minlength=60).astype(float)
    one = TraceNormRegressor(alpha=0.2, tol=1e-9).fit(X, y, weight, confounds=C)
    left = weight == 0
    assert drawn.scores[0] == pytest.approx(one.score(X[left], y[left], confounds=C[left]), abs=1e-4)


def test_every_model_of_a_comparison_sees_residuals_and_searches_regress_in_their_own_folds():
    X, y, C = labelled()
    folds = list(KFold(3).split(X))
    models = {"ours": TraceNormClassifier(alpha=0.05), "search": TensorClassifier(views=None, alphas=3, cv=3)}
    found = compare(models, X, y, confounds=C, cv=folds)
    np.testing.assert_allclose(found.scores[0], cleaned_scores(models["ours"], X, y, C, folds))
    for f, (train, test) in enumerate(folds):
        one = clone(models["search"]).fit(X[train], y[train], confounds=C[train])
        assert found.scores[1, f] == pytest.approx(one.score(X[test], y[test], confounds=C[test]))
    assert found.names == ("ours", "search", "ridge", "logistic")


def test_a_target_that_follows_a_confound_alone_is_not_found_in_residuals():
    rng = np.random.default_rng(0)
    y = np.arange(120) % 2
    C = y + 0.3 * rng.normal(size=120)
    X = rng.normal(size=(120, 4, 3)) + 2.0 * C[:, None, None]
    model = TraceNormClassifier(alpha=0.02)
    options = {"n_permutations": 99, "random_state": 0}
    assert permutation_test(model, X, y, **options).p_value == 0.01
    assert permutation_test(model, X, y, confounds=C, **options).score < 0.65


@pytest.mark.parametrize("loss", ["squared_error", "log_loss"])
def test_times_as_confounds_cost_samples_of_single_precision_no_digits(loss, xp):
    """A clock in seconds since 1970 has no digits left in single precision: its part of a score must not be summed there."""
    X, y, C = confounded(80)
    X, seconds = X.astype(np.float32), np.round(30.0 * C)
    make = TraceNormRegressor if loss == "squared_error" else TraceNormClassifier
    y = y if loss == "squared_error" else (y > np.median(y)).astype(int)
    scores = {}
    for start in (0.0, 1.7e9):
        model = make(alpha=0.1, loss=loss).fit(xp.asarray(X), xp.asarray(y), confounds=seconds + start)
        method = "predict" if loss == "squared_error" else "decision_function"
        scores[start] = np.asarray(getattr(model, method)(xp.asarray(X), confounds=seconds + start))
        assert scores[start].dtype == np.float32
    np.testing.assert_allclose(scores[1.7e9], scores[0.0], atol=1e-4 * np.abs(scores[0.0]).max())


@pytest.mark.parametrize("options", [{}, {"fit_intercept": False}, {"class_weight": "balanced"}])
def test_a_tree_of_classes_learns_from_what_confounds_leave(options, tmp_path):
    X, y, C = confounded(240)
    labels = np.digitize(y, np.quantile(y, [0.2, 0.5, 0.7]))
    seen = np.where(labels == 0, 2.0, 1.0)[:200]
    if "class_weight" in options:  # the regression weighs samples as the model does
        counts = np.bincount(labels[:200], seen)
        weight = seen * (np.sum(counts) / (4 * counts))[labels[:200]]
    else:
        weight = seen
    clean = residual(X, C, slice(200), centre=options.get("fit_intercept", True), weight=weight)
    plain = HierarchicalTraceNormClassifier(0.05, tol=1e-10, **options).fit(clean[:200], labels[:200], seen)
    model = HierarchicalTraceNormClassifier(0.05, tol=1e-10, **options)
    model.fit(X[:200], labels[:200], seen, confounds=C[:200])
    assert model.tree_ == plain.tree_
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-5)
    expected = plain.decision_function(clean[200:])
    np.testing.assert_allclose(model.decision_function(X[200:], confounds=C[200:]), expected, atol=1e-4)
    assert model.score(X[200:], labels[200:], confounds=C[200:]) == plain.score(clean[200:], labels[200:])
    online = clone(model).partial_fit(X[:90], labels[:90], range(4), seen[:90], confounds=C[:90])
    online.partial_fit(X[90:200], labels[90:200], sample_weight=seen[90:], confounds=C[90:200])
    np.testing.assert_allclose(online.coef_, model.coef_, atol=1e-5)
    save(model, tmp_path / "tree.tracelearn")
    loaded = load(tmp_path / "tree.tracelearn")
    np.testing.assert_array_equal(loaded.predict(X, confounds=C), model.predict(X, confounds=C))
    with pytest.raises(ValueError, match="Expected 2 confounds of each sample, as in fit, got none"):
        model.predict(X)
    with pytest.raises(ValueError, match="Expected 2 confounds of each sample, as in fit, got 1"):
        online.partial_fit(X, labels, confounds=C[:, 0])
    with pytest.raises(ValueError, match="Expected no confounds"):
        plain.predict(X, confounds=C)
    assert not hasattr(model.fit(X, labels), "confound_coef_")
