"""Pages for people: about one model, what it is, how well it does, what it has learned, how to repeat it; about one result.

What is shown are frozen values (``facts``, ``scores``, ``numbers``) and sentences (``words``); how it looks are templates.
"""

from __future__ import annotations

import os
from typing import Any

from tracelearn.io.writing import write_atomically
from tracelearn.plotting.views import describe_views
from tracelearn.report.evaluation import evaluate
from tracelearn.report.facts import gather
from tracelearn.report.page import Origin, render
from tracelearn.report.result import result_page, write_result_page
from tracelearn.report.scores import Evaluation, Study, bounds_of, compare
from tracelearn.samples.by_name import with_groups, with_targets

__all__ = [
    "Evaluation",
    "Origin",
    "Study",
    "describe_views",
    "evaluate",
    "model_page",
    "result_page",
    "write_model_page",
    "write_result_page",
]


def model_page(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    groups: Any = None,
    confounds: Any = None,
    evaluation: Evaluation | None = None,
    mode_names: Any = None,
    coordinates: Any = None,
    units: Any = None,
    target_names: Any = None,
    study: Study | None = None,
    origin: Origin | None = None,
) -> str:
    """Return the page of a fitted model: one HTML text with everything in it, which loads nothing.

    Parameters
    ----------
    model : fitted regressor or classifier of tracelearn, alone or at the end of a Pipeline
    X, y : arrays, or a file and the name of its targets, default=None
        Samples that the model has not seen, with their targets: the page then shows how well it predicts them. Epochs of MNE
        bring their events as targets; of a file or a table y is the name of the targets in it.
    groups : array of shape (n_samples,) or the name of a column, default=None
        The groups of X, for a search that aligns samples by group.
    confounds : array of shape (n_samples,) or (n_samples, n_confounds), default=None
        Of the samples of X, for a model that was fitted with confounds.
    evaluation : Evaluation, default=None
        What ``evaluate`` found, in the place of X and y: the page then shows the scores of its folds.
    mode_names, units : sequences of N str or None, default=None
    coordinates : sequence of N arrays or None, default=None
        Numbers are drawn as lines, names as stems; None counts from 0.
    target_names : sequence of K str, default=None
        What numbers that are predicted are called; classes have names.
    study : Study, default=None
        What the paragraph for a methods section tells and a model does not know: the number of samples, of groups, and a
        permutation test. None takes the numbers of ``evaluation``.
    origin : Origin, default=None
        The file of the model, and the command that made the page, for its last lines.

    Examples
    --------
    >>> from tracelearn import TraceNormRegressor
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> from tracelearn.report import Study, model_page
    >>> X, y, W = make_low_rank_regression(300, (6, 5), rank=1, random_state=0)
    >>> model = TraceNormRegressor(alpha=1.0).fit(X[:200], y[:200])
    >>> html = model_page(model, X[200:], y[200:], mode_names=("channel", "time"), study=Study(n_samples=200))
    >>> "A linear model of a number" in html, "n = 200" in html, "http://" in html.replace("http://www.w3.org/2000/svg", "")
    (True, True, False)
    """
    facts = gather(model, mode_names=mode_names, coordinates=coordinates, units=units, target_names=target_names)
    if X is None:
        return render(facts, evaluation, study, origin)
    if evaluation is not None:
        raise ValueError("Expected X and y, or an evaluation, got both: leave one out.")
    modes = getattr(model, "modes_", None)
    X, y, _, groups = with_groups(X, y, None, groups, modes)
    X, y, _ = with_targets(X, y, None, modes)
    if y is None:
        raise ValueError("Expected targets y with X, got None: give both, or neither.")
    arguments = {} if groups is None else {"groups": groups}
    if confounds is not None:
        arguments["confounds"] = confounds
    predicted = model.predict(X, **arguments)
    result = compare(y, predicted, getattr(model, "classes_", None), bounds_of(model, X, **arguments))
    return render(facts, Evaluation(result, f"{result.total:,} samples"), study, origin)


def write_model_page(model: Any, path: str | os.PathLike[str], X: Any = None, y: Any = None, **options: Any) -> None:
    """Write the page of a model to a file; all other parameters are those of ``model_page``.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from tracelearn import TraceNormRegressor
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> from tracelearn.report import write_model_page
    >>> X, y, W = make_low_rank_regression(200, (4, 3), rank=1, random_state=0)
    >>> model = TraceNormRegressor(alpha=1.0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_model_page(model, pathlib.Path(folder) / "page.html", mode_names=("channel", "time"))
    ...     [file.name for file in pathlib.Path(folder).iterdir()]
    ['page.html']
    """
    write_atomically(path, model_page(model, X, y, **options).encode("utf-8", "backslashreplace"))
