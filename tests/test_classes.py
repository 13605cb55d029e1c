"""Classes as targets: coding for more classes, merging and forgetting models, all exact."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelearn import Moments, TensorClassifier, TraceNormClassifier, TraceNormRegressor
from tracelearn.losses import n_columns
from tracelearn.samples.targets import recode, union

SHAPE = (3, 2, 2)
FIELDS = ("weight", "x_mean", "y_mean", "gram", "cross", "target_sq")
NAMES = np.array(["ash", "birch", "cedar", "elm", "fir"])
TIGHT = {"alpha": 0.03, "tol": 1e-12, "max_iter": 1000, "keep_moments": True}


def coded(labels, classes):
    columns = 2.0 * (labels[:, None] == classes[None, :]) - 1.0
    return columns[:, 1:] if len(classes) == 2 else columns


def labelled(n=90, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    labels = NAMES[rng.integers(0, n_classes, n)]
    means = rng.standard_normal((len(NAMES), *SHAPE))
    return rng.standard_normal((n, *SHAPE)) + means[np.searchsorted(NAMES, labels)], labels


def numbers(n=90, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, *SHAPE)) + 2.0
    return X, X[:, 0, 0, 0] - X[:, 1, 1, 0] + 0.3 * rng.standard_normal(n)


@given(data=st.data())
def test_recoded_moments_are_those_of_samples_coded_for_all_classes(data):
    new = np.array(sorted(data.draw(st.sets(st.sampled_from(NAMES.tolist()), min_size=1, max_size=5))))
    old = np.array(sorted(data.draw(st.sets(st.sampled_from(new.tolist()), min_size=1))))
    rng = np.random.default_rng(data.draw(st.integers(0, 100)))
    labels = rng.choice(old, 20)
    X, weight = rng.standard_normal((20, 4)), rng.uniform(0.1, 2.0, 20)
    found = recode(Moments.of(X, coded(labels, old), weight), old, new)
    wanted = Moments.of(X, coded(labels, new), weight)
    assert found.n_targets == n_columns(len(new))
    for name in FIELDS:
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), atol=1e-12)


def test_recoding_rounds_nothing():
    X, labels = labelled(n_classes=2)
    two = Moments.of(X, coded(labels, NAMES[:2]))
    three = recode(two, NAMES[:2], NAMES[:3])
    np.testing.assert_array_equal(three.cross[:, 1], two.cross[:, 0])
    np.testing.assert_array_equal(three.cross[:, 0], -two.cross[:, 0])
    assert recode(two, NAMES[:2], NAMES[:2]) is two


def test_classes_that_are_not_contained_or_not_those_of_the_moments_are_refused():
    X, labels = labelled()
    moments = Moments.of(X, coded(labels, NAMES[:3]))
    with pytest.raises(ValueError, match=r"^Expected new classes that contain the old ones"):
        recode(moments, NAMES[:3], NAMES[:2])
    with pytest.raises(ValueError, match=r"^Expected moments of 1 targets for 2 classes, got 3"):
        recode(moments, NAMES[:2], NAMES[:3])
    with pytest.raises(ValueError, match=r"^Expected labels of one kind"):
        union([1, 2], ["ash"])


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_two_sites_are_one_regressor(fit_intercept):
    X, y = numbers()
    options = {**TIGHT, "fit_intercept": fit_intercept}
    whole = TraceNormRegressor(**options).fit(X, y)
    sites = [TraceNormRegressor(**options).fit(X[part], y[part]) for part in (slice(None, 40), slice(40, None))]
    for other in (sites[1], sites[1].moments_):
        merged = TraceNormRegressor(**options).fit(X[:40], y[:40])
        assert merged.merge(other) is merged
        assert merged.moments_.weight == 90
        np.testing.assert_allclose(merged.coef_, whole.coef_, atol=1e-9)
        np.testing.assert_allclose(merged.intercept_, whole.intercept_, atol=1e-9)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["ash", "birch"], ["ash", "birch"]),
        (["ash", "cedar"], ["birch", "elm"]),
        (["birch", "cedar"], ["ash", "birch"]),
        (["ash", "birch", "cedar"], ["birch", "elm"]),
        (["cedar", "elm"], ["ash", "birch", "fir"]),
        (["ash", "birch", "cedar"], ["cedar", "elm", "fir"]),
    ],
)
@pytest.mark.parametrize("target_mode", [False, True])
def test_two_sites_that_saw_different_classes_are_one_classifier_of_all(first, second, target_mode):
    X, labels = labelled(300, 5)
    here, there = np.isin(labels, first), np.isin(labels, second)
    here &= ~there | (np.arange(300) % 2 == 0)
    there &= ~here
    options = {**TIGHT, "target_mode": target_mode}
    whole = TraceNormClassifier(**options).fit(X[here | there], labels[here | there])
    sites = [TraceNormClassifier(**options).fit(X[part], labels[part]) for part in (here, there)]
    merged = sites[0].merge(sites[1])
    np.testing.assert_array_equal(merged.classes_, whole.classes_)
    np.testing.assert_allclose(merged.coef_, whole.coef_, atol=1e-9)
    np.testing.assert_allclose(merged.intercept_, whole.intercept_, atol=1e-9)
    np.testing.assert_array_equal(merged.predict(X), whole.predict(X))


def test_a_search_is_refused_where_a_linear_model_is_merged():
    X, labels = labelled()
    chosen = TensorClassifier(alphas=5, cv=2, views=None, keep_moments=True).fit(X[:50], labels[:50])
    model = TraceNormClassifier(**TIGHT).fit(X[50:], labels[50:])
    with pytest.raises(ValueError, match=r"^Expected another TraceNormClassifier, got TensorClassifier"):
        model.merge(chosen)


@pytest.mark.parametrize("kept", [60, 8])  # 8 samples of 12 numbers: what is left has less than full rank
def test_what_is_forgotten_was_never_learned(kept):
    X, y = numbers()
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 90)
    model = TraceNormRegressor(**TIGHT).fit(X, y, weight).forget(X[kept:], y[kept:], weight[kept:])
    never = TraceNormRegressor(**TIGHT).fit(X[:kept], y[:kept], weight[:kept])
    np.testing.assert_allclose(model.coef_, never.coef_, atol=1e-8 if kept < 12 else 1e-9)
    assert model.moments_.weight == pytest.approx(weight[:kept].sum())
    labels = np.where(y > np.median(y), "yes", "no")
    model = TraceNormClassifier(**TIGHT).fit(X, labels).forget(X[60:], labels[60:])
    np.testing.assert_allclose(model.coef_, TraceNormClassifier(**TIGHT).fit(X[:60], labels[:60]).coef_, atol=1e-9)


def test_forgetting_float32_samples_leaves_weights_as_wide_as_they_were():
    X, y = numbers()
    model = TraceNormRegressor(alpha=0.03, keep_moments=True).fit(X, y).forget(X[:5].astype(np.float32), y[:5])
    assert model.coef_.dtype == np.float64


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model, X, y: model.forget(X, y), "some samples to be left"),
        (lambda model, X, y: model.forget(X[:40] + 50.0, y[:40]), "samples that this model has learned"),
        (lambda model, X, y: model.forget(np.tile(X, (2, 1, 1, 1)), np.tile(y, 2)), "part of these"),
        (lambda model, X, y: model.forget(X[:, :2], y), "samples of shape"),
        (lambda model, X, y: model.merge(TraceNormRegressor()), "fitted model that keeps moments"),
        (lambda model, X, y: model.merge(3), "fitted model that keeps moments"),
        (lambda model, X, y: model.merge(TraceNormRegressor(keep_moments=True).fit(X[:, :2], y)), "samples of shape"),
        (
            lambda model, X, y: model.merge(TraceNormClassifier(keep_moments=True).fit(X, y > 0)),
            "another TraceNormRegressor",
        ),
        (lambda model, X, y: model.merge(Moments.zero(5)), "moments of 12 features"),
        (lambda model, X, y: TraceNormRegressor().merge(model), "fitted model that keeps moments"),
        (
            lambda model, X, y: (
                TraceNormClassifier(class_weight="balanced", keep_moments=True).fit(X, y > 0).forget(X[:3], y[:3] > 0)
            ),
            "'balanced'",
        ),
    ],
)
def test_refusals_are_sentences_and_change_nothing(change, message):
    X, y = numbers()
    model = TraceNormRegressor(alpha=0.03, keep_moments=True).fit(X, y)
    before = dict(vars(model))
    with pytest.raises(ValueError, match=rf"^Expected .*{message}"):
        change(model, X, y)
    assert all(vars(model)[name] is value for name, value in before.items())


def test_losses_without_moments_say_so():
    X, y = numbers()
    model = TraceNormRegressor(loss="huber").fit(X, y)
    for name in ("merge", "forget"):
        assert not hasattr(model, name)
        with pytest.raises(AttributeError) as refusal:
            getattr(model, name)
        assert "squared_error" in str(refusal.value.__cause__ or refusal.value)


def test_classes_can_be_found_as_they_come():
    X, labels = labelled(200, 5)
    order = np.argsort(labels, kind="stable")  # first only one class, then two, ...
    X, labels = X[order], labels[order]
    model = TraceNormClassifier(**TIGHT)
    for start in range(0, 200, 30):
        model.accumulate(X[start : start + 30], labels[start : start + 30])
    model.refresh()
    whole = TraceNormClassifier(**TIGHT).fit(X, labels)
    np.testing.assert_array_equal(model.classes_, whole.classes_)
    np.testing.assert_allclose(model.coef_, whole.coef_, atol=1e-9)


def test_a_model_of_another_library_is_merged_into_one_of_numpy_and_the_other_way():
    torch = pytest.importorskip("torch", reason="PyTorch is an extra")
    X, labels = labelled(120, 3)
    codes = np.searchsorted(NAMES, labels)
    whole = TraceNormClassifier(**TIGHT).fit(X, codes)

    def here():
        return TraceNormClassifier(**TIGHT).fit(X[:50], codes[:50])

    def there():
        return TraceNormClassifier(**TIGHT).fit(torch.asarray(X[50:]), torch.asarray(codes[50:]))

    numpy = here().merge(there())
    assert isinstance(numpy.coef_, np.ndarray)
    assert isinstance(numpy.moments_.gram, np.ndarray)
    np.testing.assert_allclose(numpy.coef_, whole.coef_, atol=1e-9)
    np.testing.assert_array_equal(numpy.predict(X), whole.predict(X))
    other = there().merge(here())
    assert isinstance(other.coef_, torch.Tensor)
    np.testing.assert_allclose(np.asarray(other.coef_), whole.coef_, atol=1e-9)
    np.testing.assert_array_equal(np.asarray(other.predict(torch.asarray(X))), whole.predict(X))
    # Numbers too, and moments alone.
    X, y = numbers()
    one = TraceNormRegressor(**TIGHT).fit(X[:40], y[:40])
    one.merge(TraceNormRegressor(**TIGHT).fit(torch.asarray(X[40:]), torch.asarray(y[40:])).moments_)
    np.testing.assert_allclose(one.coef_, TraceNormRegressor(**TIGHT).fit(X, y).coef_, atol=1e-9)
