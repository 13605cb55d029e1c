"""New persons: samples of each group aligned by themselves, in transformers, in the search, and for one person alone."""

import json
import warnings

import array_api_strict
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, LeaveOneGroupOut, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from tracelearn import (
    Chain,
    Logarithm,
    ModeWhitener,
    PerGroup,
    ResampleTime,
    SecondOrder,
    TensorClassifier,
    TensorRegressor,
    TensorStandardScaler,
    load,
    save,
    to_onnx,
)
from tracelearn.cli import main
from tracelearn.datasets import make_persons
from tracelearn.inference import compare, permutation_test
from tracelearn.report import evaluate
from tracelearn.search.folds import make_folds

ALIGN = ModeWhitener(shrinkage=0.0, time_axis=-1, unit_variance=True)
VIEWS = [("power", SecondOrder()), ("raw", None)]


@pytest.fixture(scope="module")
def persons():
    """Eight persons who differ so much that samples must be aligned."""
    return make_persons(8, 24, n_channels=4, n_times=60, mixing=0.5, gain=1.0, power=2.0, random_state=0)


@pytest.fixture(scope="module")
def aligned_model(persons):
    """A search that saw the first six of them, and aligns."""
    seen = persons.person < 6
    model = TensorClassifier(VIEWS).fit(persons.X[seen], persons.y[seen], groups=persons.person[seen])
    assert isinstance(model.alignment_, ModeWhitener)
    return model


# --- PerGroup ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", [ALIGN, SecondOrder(), TensorStandardScaler(per=0), Chain([ALIGN, SecondOrder()])])
def test_each_group_is_transformed_as_if_it_were_alone(persons, inner):
    X, _, person, *_ = persons
    Z = PerGroup(inner).fit_transform(X, groups=person)
    for group in range(8):
        assert_allclose(Z[person == group], inner.fit(X[person == group]).transform(X[person == group]), atol=1e-12)


def test_gain_and_mixing_of_a_group_are_taken_away(persons):
    X, _, person, *_ = persons
    rng = np.random.default_rng(0)
    mixed = np.einsum("nij,njt->nit", rng.standard_normal((8, 4, 4))[person], X)
    Z = PerGroup(ALIGN).fit_transform(mixed, groups=person)
    for group in range(8):
        signals = Z[person == group] - Z[person == group].mean(axis=0)
        covariance = np.einsum("nit,njt->ij", signals, signals) / signals[:, 0].size
        assert_allclose(covariance, np.eye(4), atol=1e-9)
    scaled = X * np.exp(rng.standard_normal(8))[person, None, None]
    assert_allclose(
        PerGroup(ALIGN).fit_transform(scaled, groups=person), PerGroup(ALIGN).fit_transform(X, groups=person)
    )


def test_order_of_samples_and_names_of_groups_do_not_matter(persons):
    X, _, person, *_ = persons
    order = np.random.default_rng(0).permutation(len(X))
    names = np.array([f"person {7 - number}" for number in person])
    Z = PerGroup(ALIGN).fit_transform(X, groups=person)
    assert_allclose(PerGroup(ALIGN).fit_transform(X[order], groups=names[order]), Z[order])


def test_fit_and_then_transform_is_fit_transform(persons):
    X, _, person, *_ = persons
    transformer = PerGroup(SecondOrder())
    assert_array_equal(
        transformer.fit(X, groups=person).transform(X, groups=person), transformer.fit_transform(X, groups=person)
    )
    assert sorted(transformer.transformers_) == list(range(8))


def test_other_libraries_dask_blocks_and_frames_are_aligned_as_arrays_are(persons):
    X, _, person, *_ = persons
    transformer = PerGroup(ALIGN)
    Z = transformer.fit_transform(X, groups=person)
    strict = transformer.fit_transform(array_api_strict.asarray(X), groups=person)
    assert isinstance(strict, type(array_api_strict.asarray(X)))
    assert_allclose(np.asarray(strict), Z)
    lazy = transformer.fit_transform(da.from_array(X, chunks=(50, -1, -1)), groups=person)
    assert isinstance(lazy, da.Array)
    assert_allclose(lazy.compute(), Z)
    assert_allclose(transformer.fit_transform([(X[:100], None), (X[100:], None)], groups=person), Z)
    frame = pd.DataFrame(X[:, :, 0])
    expected = PerGroup(StandardScaler()).fit_transform(X[:, :, 0], groups=person)
    assert_allclose(PerGroup(StandardScaler()).fit_transform(frame, groups=person), expected)


@pytest.mark.parametrize("inner", [SecondOrder(), ResampleTime(n_times=20)])
def test_samples_of_unequal_length_are_aligned_where_the_transformer_takes_them(inner):
    rng = np.random.default_rng(0)
    samples = [rng.standard_normal((3, length)) for length in rng.integers(25, 40, 24)]
    samples[5][1, 3:6] = np.nan
    groups = np.arange(24) % 3
    transformer = PerGroup(inner).fit(samples[::-1], groups=groups)
    Z = transformer.transform(samples, groups=groups)
    for group in range(3):
        alone = [sample for sample, number in zip(samples, groups, strict=True) if number == group]
        assert_allclose(Z[groups == group], clone(inner).fit_transform(alone), atol=1e-9)
    with pytest.raises(ValueError, match="as in fit"):
        transformer.transform([sample[:2] for sample in samples], groups=groups)


def test_what_cannot_be_aligned_is_refused_in_one_sentence(persons):
    X, _, person, *_ = persons
    transformer = PerGroup(ALIGN).fit(X, groups=person)
    with pytest.raises(ValueError, match="Expected groups=, the group of each sample, for PerGroup, got none"):
        transformer.transform(X)
    with pytest.raises(ValueError, match="at least 2 samples of group 3"):
        transformer.transform(X[[0, 1, 75]], groups=person[[0, 1, 75]])
    with pytest.raises(ValueError, match=r"samples of shape \(4, 60\) as in fit, got samples of shape \(3, 60\)"):
        transformer.transform(X[:, :3], groups=person)


# --- Chain ---------------------------------------------------------------------------------------------------------------


def test_a_chain_is_its_transformers_one_after_the_other(persons):
    X = persons.X
    expected = make_pipeline(clone(ALIGN), SecondOrder()).fit_transform(X)
    chain = Chain([ALIGN, SecondOrder()])
    assert_allclose(chain.fit_transform(X), expected, atol=1e-12)
    blocks = [(X[:90], None), (X[90:], None)]
    assert_allclose(chain.fit(blocks).transform(X), expected, atol=1e-9)


# --- the search ----------------------------------------------------------------------------------------------------------


def test_aligning_is_found_where_persons_differ_and_predicts_new_ones_better(persons, aligned_model):
    X, y, person, *_ = persons
    seen = person < 6
    without = TensorClassifier(VIEWS, align=None).fit(X[seen], y[seen], groups=person[seen])
    assert without.alignment_ is None
    new = ~seen
    assert aligned_model.score(X[new], y[new], groups=person[new]) > without.score(X[new], y[new]) + 0.1
    taken = [
        name
        for name, is_taken in zip(*map(aligned_model.views_tried_.get, ("views", "taken")), strict=True)
        if is_taken
    ]
    assert all("whitened_channels by group" in name for name in taken)


def test_where_the_person_is_the_label_nothing_is_aligned():
    X, y, person, *_ = make_persons(12, 12, n_channels=4, n_times=30, confounded=True, power=3.0, random_state=1)
    model = TensorClassifier(VIEWS).fit(X, y, groups=person)
    assert model.alignment_ is None
    assert any("by group" in name for name in model.views_tried_["views"])


@pytest.mark.parametrize(
    ("chosen", "cv", "reason"),
    [
        (lambda person, number: person < 2, 2, "fewer than 3 groups"),
        (lambda person, number: number % 24 < 3, 3, "a group of 3 samples has fewer than channels, 4"),
        (
            lambda person, number: person >= 0,
            [(np.arange(0, 192, 2), np.arange(1, 192, 2))],
            "folds do not hold groups",
        ),
    ],
)
def test_what_cannot_be_judged_is_not_tried_and_says_so(persons, chosen, cv, reason, caplog):
    X, y, person, *_ = persons
    index = chosen(person, np.arange(192))
    with caplog.at_level("INFO", logger="tracelearn"):
        model = TensorClassifier(VIEWS, cv=cv, verbose=1).fit(X[index], y[index], groups=person[index])
    assert model.alignment_ is None
    assert reason in model.views_tried_["reason"][-1]
    assert any(reason in record.message for record in caplog.records)


@pytest.mark.parametrize("views", ["auto", [Logarithm()], [Logarithm(), None]])
def test_logarithms_are_of_samples_as_they_are(persons, views):
    X, y, person, *_ = persons
    X = np.exp(np.tanh(X / X.std()))
    model = TensorClassifier(views).fit(X, y, groups=person)
    assert not any("log" in name and "by group" in name for name in model.views_tried_["views"])
    assert np.isfinite(model.decision_function(X, groups=person)).all()


def test_numbers_are_predicted_for_new_persons_as_well(persons):
    X, y, person, *_ = persons
    seen = person < 6
    target = y + 0.1 * np.random.default_rng(0).standard_normal(len(y))
    model = TensorRegressor(VIEWS).fit(X[seen], target[seen], groups=person[seen])
    assert model.alignment_ is not None
    new = person == 7
    one = model.adapted(X[new])
    assert_allclose(one.predict(X[new]), model.predict(X[new], groups=person[new]), rtol=1e-10)
    for bound, same in zip(
        one.predict_interval(X[new]), model.predict_interval(X[new], groups=person[new]), strict=True
    ):
        assert_allclose(bound, same, rtol=1e-8)
    assert model.score(X[new], target[new], groups=person[new]) == pytest.approx(one.score(X[new], target[new]))


# --- one new person ------------------------------------------------------------------------------------------------------


def test_an_adapted_model_predicts_one_by_one_what_the_model_predicts_of_the_group(persons, aligned_model):
    X, _, person, *_ = persons
    for group in (6, 7):
        new = X[person == group]
        one = aligned_model.adapted(new)
        for method in ("predict", "predict_proba", "decision_function", "predict_log_proba"):
            expected = getattr(aligned_model, method)(X, groups=person)[person == group]
            single = np.concatenate([getattr(one, method)(sample[None]) for sample in new])
            assert_allclose(single, expected, rtol=1e-10, atol=1e-12)


def test_adapting_leaves_the_model_as_it_was_and_is_an_ordinary_model(persons, aligned_model):
    X, _, person, *_ = persons
    before = aligned_model.predict_proba(X, groups=person)
    one = aligned_model.adapted(X[person == 7])
    assert_array_equal(aligned_model.predict_proba(X, groups=person), before)
    assert one.alignment_ is None
    assert repr(one) == repr(aligned_model)
    assert vars(one).keys() == vars(aligned_model).keys()
    assert one.adapted(X[:5]).predict(X[:5]).tolist() == one.predict(X[:5]).tolist()


def test_an_aligned_model_without_groups_says_both_ways(persons, aligned_model):
    with pytest.raises(ValueError, match=r"pass the group of each sample.*or predict by adapted\(X\)"):
        aligned_model.predict(persons.X)
    with pytest.raises(ValueError, match="at least 2 samples of group 'Ann'"):
        aligned_model.predict(persons.X[:1], groups=["Ann"])
    with pytest.raises(ValueError, match="at least 2 samples of a new group"):
        aligned_model.adapted(persons.X[:1])


def test_linear_views_of_an_adapted_model_have_weights_of_its_own_channels(persons):
    X, _, person, *_ = persons
    model = TensorRegressor([ModeWhitener(), None], align=TensorStandardScaler(per=0, with_mean=False))
    target = X[:, 0, :5].sum(axis=1) / np.array([X[person == p, 0].std() for p in range(8)])[person]
    model.fit(X, target, groups=person)
    assert model.alignment_ is not None
    one = model.adapted(X[person == 3])
    assert one.is_linear_
    scores = np.tensordot(X[person == 3], one.coef_, axes=2)
    assert_allclose(np.ptp(one.predict(X[person == 3]) - scores), 0.0, atol=1e-9)
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(to_onnx(one).SerializeToString())
    (graph,) = session.run(None, {"X": X[person == 3]})
    assert_allclose(graph, one.predict(X[person == 3]), atol=1e-9)


def test_files_hold_aligned_models_and_adapted_ones(persons, aligned_model, tmp_path):
    X, _, person, *_ = persons
    save(aligned_model, tmp_path / "all")
    again = load(tmp_path / "all")
    assert_array_equal(again.predict_proba(X, groups=person), aligned_model.predict_proba(X, groups=person))
    one = again.adapted(X[person == 7])
    save(one, tmp_path / "one")
    assert_array_equal(load(tmp_path / "one").predict(X), one.predict(X))
    with pytest.raises(ValueError, match="adapted"):
        to_onnx(aligned_model)


def test_views_of_scikit_learn_are_adapted_too(persons):
    X, y, person, *_ = persons
    views = [("squares", FunctionTransformer(np.square)), ("power", SecondOrder())]
    model = TensorClassifier(views).fit(X, y, groups=person)
    assert model.alignment_ is not None
    one = model.adapted(X[person == 2])
    assert_allclose(one.decision_function(X[person == 2]), model.decision_function(X, groups=person)[person == 2])


# --- metadata routing ----------------------------------------------------------------------------------------------------


@pytest.fixture
def routed(aligned_model):
    """The same search, which asks scikit-learn for groups wherever it takes them."""
    with config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = TensorClassifier(VIEWS[:1], alphas=3).set_fit_request(groups=True).set_predict_request(groups=True)
        model = model.set_predict_proba_request(groups=True).set_decision_function_request(groups=True)
        yield model.set_score_request(groups=True)


def test_cross_val_score_passes_groups_on(persons, routed):
    X, y, person, *_ = persons
    scores = cross_val_score(routed, X, y, cv=GroupKFold(2), params={"groups": person})
    by_hand = []
    for train, test in GroupKFold(2).split(X, y, person):
        model = TensorClassifier(VIEWS[:1], alphas=3).fit(X[train], y[train], groups=person[train])
        by_hand.append(model.score(X[test], y[test], groups=person[test]))
    assert_allclose(scores, by_hand)


def test_cross_val_predict_gives_no_groups_to_predict_so_samples_are_aligned_before(persons, routed):
    X, y, person, *_ = persons
    with pytest.raises(ValueError, match="Expected groups= for predict"):  # scikit-learn passes them to fit alone
        cross_val_predict(routed, X, y, cv=GroupKFold(2), params={"groups": person})
    # Each person is aligned without targets and without the others, so that folds stay what they are.
    Z = PerGroup(ALIGN).fit_transform(X, groups=person)
    predicted = cross_val_predict(
        clone(routed).set_params(align=None), Z, y, cv=GroupKFold(2), params={"groups": person}
    )
    train, test = next(GroupKFold(2).split(X, y, person))
    model = TensorClassifier(VIEWS[:1], alphas=3, align=[("whitened", ALIGN)]).fit(
        X[train], y[train], groups=person[train]
    )
    assert_array_equal(predicted[test], model.predict(X[test], groups=person[test]))


def test_a_pipeline_passes_groups_on(persons, routed):
    X, y, person, *_ = persons
    pipe = make_pipeline(TensorStandardScaler(per="global"), routed).fit(X, y, groups=person)
    assert pipe[-1].alignment_ is not None
    labels = pipe.predict(X, groups=person)
    assert pipe.score(X, y, groups=person) == pytest.approx(np.mean(labels == y))
    first = make_pipeline(PerGroup(Chain([ALIGN, SecondOrder()])), FunctionTransformer(flat), LogisticRegression())
    scores = cross_val_score(first, X, y, cv=LeaveOneGroupOut(), params={"groups": person})
    Z = flat(PerGroup(Chain([ALIGN, SecondOrder()])).fit_transform(X, groups=person))
    assert_allclose(
        scores, cross_val_score(LogisticRegression(), Z, y, cv=LeaveOneGroupOut(), params={"groups": person})
    )


def flat(Z):
    return Z.reshape(len(Z), -1)


def test_calibration_gives_groups_to_fit_alone_so_an_adapted_model_is_calibrated(persons, routed, aligned_model):
    X, y, person, *_ = persons
    with pytest.raises(ValueError, match="Expected groups= for"):
        CalibratedClassifierCV(routed, cv=GroupKFold(2)).fit(X, y, groups=person)
    new = person == 7
    one = aligned_model.adapted(X[new])
    calibrated = CalibratedClassifierCV(FrozenEstimator(one)).fit(X[new], y[new])
    order = np.argsort(one.decision_function(X[new]))
    assert np.all(np.diff(calibrated.predict_proba(X[new])[order, 1]) >= -1e-12)


def test_a_search_that_asks_for_no_groups_leaves_them_to_the_splitter(persons):
    X, y, person, *_ = persons
    with config_context(enable_metadata_routing=True):
        model = TensorClassifier([("power", SecondOrder())])
        assert len(cross_val_score(model, X, y, cv=GroupKFold(2), params={"groups": person})) == 2


# --- inference -----------------------------------------------------------------------------------------------------------


def test_comparisons_align_what_each_fold_holds_out(persons):
    X, y, person, *_ = persons
    models = {"aligned": TensorClassifier(VIEWS[:1]), "as they are": TensorClassifier(VIEWS[:1], align=None)}
    compared = compare(models, X, y, groups=person, cv=2, repeats=1, yardsticks=False)
    assert compared.scores[0].mean() > compared.scores[1].mean() + 0.1


def test_permutations_of_an_aligned_choice_and_of_the_whole_search(persons):
    X, y, person, *_ = persons
    model = TensorClassifier(VIEWS[:1], alphas=3)
    fixed = permutation_test(model, X, y, groups=person, selection="fixed", n_permutations=19, random_state=0)
    aligned = permutation_test(
        clone(model).set_params(align=None),
        PerGroup(ALIGN).fit_transform(X, groups=person),
        y,
        groups=person,
        selection="fixed",
        n_permutations=19,
        random_state=0,
    )
    assert fixed.score == pytest.approx(aligned.score)
    assert fixed.exchanged == "targets within groups"
    repeated = permutation_test(model, X, y, groups=person, n_permutations=1, random_state=0)
    assert repeated.score == pytest.approx(fixed.score, abs=0.05)


# --- commands ------------------------------------------------------------------------------------------------------------


def exit_code(*arguments):
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    return end.value.code


def test_commands_take_groups_where_a_model_aligns(persons, aligned_model, tmp_path, capsys):
    X, y, person, *_ = persons
    model, data, out = (str(tmp_path / name) for name in ("model.tracelearn", "new.npz", "labels.npy"))
    save(aligned_model, model)
    np.savez(data, X=X, y=y, who=person)
    assert exit_code("predict", model, data, "--out", out) == 2
    assert "Expected --groups with a model that aligns samples by group" in capsys.readouterr().err
    assert exit_code("predict", model, data, "--out", out, "--groups", "who", "--target", "y") == 0
    assert_array_equal(np.load(out), aligned_model.predict(X, groups=person))
    capsys.readouterr()
    assert exit_code("inspect", model, "--json") == 0
    assert "ModeWhitener" in json.loads(capsys.readouterr().out)["aligned_by"]


def test_held_out_scores_are_of_aligned_samples(persons):
    X, y, person, *_ = persons
    model = TensorClassifier(VIEWS[:1], alphas=3)
    evaluation = evaluate(model, X, y, groups=person, cv=2)
    scores = []
    for train, test in make_folds(2, y, person, classifier=True).splits:
        fitted = clone(model).fit(X[train], y[train], groups=person[train])
        scores.append(np.mean(fitted.predict(X[test], groups=person[test]) == y[test]))
    assert evaluation.folds.mean == np.mean(scores)
    assert evaluation.study.n_groups == len(np.unique(person))
