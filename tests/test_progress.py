"""How far a search is, and how it is ended early."""

import logging
import re
import signal
import warnings

import numpy as np
import pytest

from tracelearn import TensorRegressor, load, save
from tracelearn.datasets import make_low_rank_regression
from tracelearn.report import model_page
from tracelearn.search.session import Session


@pytest.fixture(scope="module")
def problem():
    X, y, _ = make_low_rank_regression(80, (5, 4, 3), rank=1, random_state=0)
    return X, y


@pytest.fixture(autouse=True)
def _interrupts_are_heard():
    """Tests that run in the background inherit that interrupts are ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_one_total_grows_from_nothing_to_the_end_and_never_back(problem, caplog):
    with caplog.at_level(logging.INFO, "tracelearn"):
        TensorRegressor(verbose=1).fit(*problem)
    shares = [record.paths_done[0] for record in caplog.records if hasattr(record, "paths_done")]
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert shares[-1] >= 70
    assert len(set(shares)) > 10
    assert re.search(r"\d+% done, about \d+\.\d s left", caplog.text)


@pytest.mark.parametrize("loss", ["squared_error", "huber"])
def test_the_first_interrupt_ends_the_search_with_a_certified_model(problem, loss, monkeypatch):
    walk = Session.walk

    def interrupted(self, *args):
        signal.raise_signal(signal.SIGINT)
        return walk(self, *args)

    monkeypatch.setattr(Session, "walk", interrupted)
    before = signal.getsignal(signal.SIGINT)
    with pytest.warns(UserWarning, match="got an interrupt"):
        model = TensorRegressor(40, loss=loss).fit(*problem)
    assert model.dual_gap_ <= 1e-6
    assert len(model.cv_results_["params"]) < 40
    assert signal.getsignal(signal.SIGINT) is before


def test_the_second_interrupt_stops_at_once_and_leaves_the_model_as_it_was(problem, monkeypatch):
    def interrupted(self, *args):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Session, "walk", interrupted)
    model = TensorRegressor()
    with pytest.warns(UserWarning, match="got an interrupt"), pytest.raises(KeyboardInterrupt):
        model.fit(*problem)
    assert not hasattr(model, "best_estimator_")


class Watching:
    """A callback that counts, and says stop after some steps."""

    def __init__(self, most=100):
        self.most, self.events = most, []

    def setup(self, estimator, context):
        self.events.append("setup")

    def teardown(self, estimator, context):
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.events.append(("begin", context.task_name, context.max_subtasks))

    def on_fit_task_end(self, estimator, context):
        self.events.append(("end", context.task_name, context.max_subtasks))
        return len(self.events) > self.most


@pytest.fixture
def callbacks():
    return pytest.importorskip("sklearn.callback", reason="scikit-learn has callbacks from version 1.9 on")


@pytest.mark.usefixtures("callbacks")
def test_callbacks_see_every_step_of_one_total(problem, tmp_path):
    watching = Watching()
    model = TensorRegressor().set_callbacks(watching).fit(*problem)
    ends = [event for event in watching.events if event[0] == "end"]
    assert watching.events[0] == "setup"
    assert watching.events[-1] == "teardown"
    assert ends[-1] == ("end", "fit", 20)
    assert len(ends) == 21
    save(model, tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").predict(problem[0]), model.predict(problem[0]))


@pytest.mark.usefixtures("callbacks")
def test_a_callback_that_says_stop_ends_the_search(problem):
    model = TensorRegressor(40).set_callbacks(Watching(most=3)).fit(*problem)
    assert model.dual_gap_ <= 1e-6
    assert len(model.cv_results_["params"]) < 40


def test_scikit_learns_bar_moves_to_its_end(problem, callbacks, capsys):
    pytest.importorskip("rich")
    TensorRegressor().set_callbacks(callbacks.ProgressBar()).fit(*problem)
    assert "100%" in capsys.readouterr().out


def test_an_alpha_at_the_end_of_its_grid_is_warned_of(problem):
    X, y = problem
    options = {"views": None, "ridges": (0.0,), "cv": 3}
    with pytest.warns(UserWarning, match="got the smallest that was tried, .*smaller ones"):
        model = TensorRegressor([3.0, 2.0, 1.0], **options).fit(X, y)
    assert "The best alpha is the smallest that was tried" in model_page(model)
    with pytest.warns(UserWarning, match="got the largest that was tried, .*larger ones"):
        TensorRegressor([0.1, 0.01, 0.001], **options).fit(X, y + np.random.default_rng(0).normal(size=80) * 5)


def test_a_score_that_is_level_at_the_end_of_the_grid_is_not_warned_of():
    X, y, _ = make_low_rank_regression(80, (5, 4, 3), rank=1, noise=0.0, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = TensorRegressor([3.0, 2e-3, 1e-3], views=None, ridges=(0.0,), cv=3).fit(X, y)
    assert model.alpha_ == pytest.approx(1e-3)
    assert "The best alpha is the" not in model_page(model)


def test_a_search_that_ends_without_weights_says_that_the_samples_say_nothing(problem):
    X, y = problem
    noise = np.random.default_rng(3).normal(size=len(y))
    with pytest.warns(UserWarning, match="no alpha that was tried predicts better than no weights") as caught:
        model = TensorRegressor(4, views=None, ridges=(0.0,), cv=3).fit(X, noise)
    assert not model.coef_.any()
    assert len(caught) == 1  # neither "try larger ones" nor "let the search choose it"
