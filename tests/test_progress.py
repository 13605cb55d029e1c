"""How far a search is, and how it is ended early."""

import logging
import re
import signal

import numpy as np
import pytest

from tracelearn import TensorRegressor
from tracelearn.datasets import make_low_rank_regression
from tracelearn.search import choice
from tracelearn.search.events import Event, Listener


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
    shares = [int(share) for share in re.findall(r"\((\d+)% done", caplog.text)]
    assert shares == sorted(shares)
    assert shares[-1] == 100
    assert len(set(shares)) > 10


def test_what_is_no_news_is_not_said():
    said = []
    listener = Listener(say=said.append)
    for done in (0.2, 0.2, 0.1, 0.4):
        listener(Event("path", done, "trace norm"))
    assert len(said) == 2


def test_time_that_is_up_ends_the_search_with_the_best_so_far(problem):
    model = TensorRegressor(max_time=1e-6).fit(*problem)
    assert model.dual_gap_ <= 1e-6
    assert len(model.views_tried_["views"]) < len(TensorRegressor().fit(*problem).views_tried_["views"])


@pytest.mark.parametrize("loss", ["squared_error", "huber"])
def test_the_first_interrupt_ends_the_search_with_a_certified_model(problem, loss, monkeypatch):
    walk = choice.trace_path

    def interrupted(*args, **options):
        signal.raise_signal(signal.SIGINT)
        return walk(*args, **options)

    monkeypatch.setattr(choice, "trace_path", interrupted)
    before = signal.getsignal(signal.SIGINT)
    with pytest.warns(UserWarning, match="Search interrupted"):
        model = TensorRegressor(alphas=40, loss=loss).fit(*problem)
    assert model.dual_gap_ <= 1e-6
    assert len(model.cv_results_["params"]) < 40
    assert signal.getsignal(signal.SIGINT) is before


def test_the_second_interrupt_stops_at_once_and_leaves_the_model_as_it_was(problem, monkeypatch):
    def interrupted(*args, **options):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(choice, "trace_path", interrupted)
    model = TensorRegressor()
    with pytest.warns(UserWarning, match="Search interrupted"), pytest.raises(KeyboardInterrupt):
        model.fit(*problem)
    assert not hasattr(model, "views_")


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
def test_callbacks_see_every_step_of_one_total(problem):
    watching = Watching()
    TensorRegressor().set_callbacks(watching).fit(*problem)
    ends = [event for event in watching.events if event[0] == "end"]
    assert watching.events[0] == "setup"
    assert watching.events[-1] == "teardown"
    assert ends[-1] == ("end", "fit", 20)
    assert len(ends) == 21


@pytest.mark.usefixtures("callbacks")
def test_a_callback_that_says_stop_ends_the_search(problem):
    model = TensorRegressor(alphas=40).set_callbacks(Watching(most=3)).fit(*problem)
    assert model.dual_gap_ <= 1e-6
    assert len(model.cv_results_["params"]) < 40


def test_scikit_learns_bar_moves_to_its_end(problem, callbacks, capsys):
    pytest.importorskip("rich")
    TensorRegressor().set_callbacks(callbacks.ProgressBar()).fit(*problem)
    assert "100%" in capsys.readouterr().out


def test_a_search_that_ends_without_weights_says_that_the_samples_say_nothing(problem):
    X, y = problem
    noise = np.random.default_rng(3).normal(size=len(y))
    with pytest.warns(UserWarning, match="no alpha that was tried predicts better than no weights") as caught:
        model = TensorRegressor(views=None, loss="huber", alphas=4, cv=3).fit(X, noise)
    assert not model.coef_.any()
    assert len(caught) == 1  # neither "try larger ones" nor "let the search choose it"
