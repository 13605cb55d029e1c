"""Cross-validation of a model for its page: what it predicts of held-out folds, and how flat models do on the same folds."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.utils import check_consistent_length

from tracelearn.arrays.array_api import Array, available_memory, to_numpy
from tracelearn.errors import refuse
from tracelearn.estimators.scores import accuracy, r_squared
from tracelearn.features.per_group import take_samples
from tracelearn.inference.comparison import Comparison, flat_rivals
from tracelearn.inference.reading import check_model, without_confounds
from tracelearn.report.scores import Evaluation, FoldScores, Study, bounds_of, compare, join_bounds
from tracelearn.samples import Source, as_source
from tracelearn.samples.by_name import size_of, with_groups, with_targets
from tracelearn.samples.learning import small_on_one_thread
from tracelearn.samples.modes import is_named, targets_of_named
from tracelearn.samples.per_sample import read_confounds, read_groups
from tracelearn.samples.source import NumberedBatch
from tracelearn.search.advice import PoorModelWarning
from tracelearn.search.folds import corrected_error, make_folds

__all__ = ["evaluate", "fits_in_memory"]

_MOST_COMPARED = 5_000_000  # numbers in samples that flat models are fitted to as well


def fits_in_memory(source: Source) -> bool:
    """Tell whether the folds of a source fit in memory: they are copies of its samples, and so is what a solver widens."""
    size = size_of(source)
    return size is not None and 4 * size <= available_memory()


@dataclass(frozen=True, eq=False)
class _Samples:
    """Samples in memory, or a source that is too large for it, with their targets, groups and confounds."""

    X: Any
    y: Array
    groups: Array | None
    confounds: Array | None

    @classmethod
    def of(cls, X: Any, y: Any, groups: Any, confounds: Any) -> _Samples:
        """Read samples; those of a file into memory, if their folds fit in it."""
        X, y, _, groups = with_groups(X, y, None, groups)
        if is_named(X):
            y = targets_of_named(X, y)
        else:
            source = as_source(X, y)
            if source.in_memory or fits_in_memory(source):
                X, y, _ = source.loaded().arrays
            else:
                refuse(confounds is not None, "Expected samples that fit in memory with confounds: take some of them.")
                X, y, _ = with_targets(source, None, None)
        refuse(y is None, "Expected one target for each sample, got none: pass y.")
        labels = to_numpy(y)
        if not isinstance(X, Source):
            check_consistent_length(X, labels)
        confounds = None if confounds is None else read_confounds(confounds, len(labels))
        return cls(X, labels, read_groups(groups, len(labels)), confounds)

    @property
    def size(self) -> float:
        """The number of entries of an array in memory; infinite for all else, which no flat model is to be fitted to."""
        return self.X.size if isinstance(self.X, np.ndarray) else np.inf

    def fit(self, model: Any, rows: Array) -> Any:
        """Fit a model to some samples, with what it takes of their groups and confounds."""
        arguments = self._arguments(model.fit, rows)
        if isinstance(self.X, Source):
            return model.fit(self._rows(rows), **arguments)
        return model.fit(self._take(rows), self.y[rows], **arguments)

    def predict(self, model: Any, rows: Array) -> Array:
        """Predict some samples, in their order."""
        X = self._rows(rows) if isinstance(self.X, Source) else self._take(rows)
        return to_numpy(model.predict(X, **self._arguments(model.predict, rows)))

    def bounds(self, model: Any, rows: Array) -> tuple[Array, Array] | None:
        """Predict intervals that hold nine of ten targets of some samples; None where a model has none."""
        if isinstance(self.X, Source) or not hasattr(model, "predict_interval"):
            return None
        return bounds_of(model, self._take(rows), **self._arguments(model.predict_interval, rows))

    def cleaned(self, train: Array) -> _Samples:
        """Regress confounds, as learned from the rows ``train``, out of all samples: for models that take no confounds."""
        weight = np.bincount(train, minlength=len(self.y)).astype(float)
        return replace(self, X=without_confounds(self.X, self.confounds, weight), confounds=None)

    def _take(self, rows: Array) -> Any:
        return [self.X[row] for row in rows] if isinstance(self.X, list) else take_samples(self.X, rows)

    def _rows(self, rows: Array) -> Source:
        """Return some samples of a source, in their order in it; every pass reads them anew."""
        rows = np.sort(rows)
        is_chosen = np.zeros(len(self.y), dtype=bool)
        is_chosen[rows] = True

        def read(start: int) -> Iterator[NumberedBatch]:
            first = 0  # of the block in the source
            n_before = 0  # chosen samples in the blocks before
            for X, _, _ in self.X.batches():
                chosen = np.flatnonzero(is_chosen[first : first + len(X)])
                n_skipped = max(0, start - n_before)
                wanted = chosen[n_skipped:]
                if len(wanted):
                    yield n_before + n_skipped, X[wanted], self.y[first + wanted], None
                first += len(X)
                n_before += len(chosen)

        source: Source = replace(self.X, n_samples=len(rows), read=read, targets=lambda: iter([(self.y[rows], None)]))
        return source

    def _arguments(self, method: Any, rows: Array) -> dict[str, Array]:
        """Gather the groups and confounds of some samples, where a method takes them."""
        values_of_samples = {"groups": self.groups, "confounds": self.confounds}
        parameters = inspect.signature(method).parameters
        return {
            name: values[rows]
            for name, values in values_of_samples.items()
            if values is not None and name in parameters
        }


@small_on_one_thread
def evaluate(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    groups: Any = None,
    confounds: Any = None,
    cv: int = 5,
    on_fold: Callable[[int, int], Any] | None = None,
) -> Evaluation:
    """Score a model on held-out folds, each predicted by a model that is chosen and fitted without it.

    Parameters
    ----------
    model : estimator
        It is cloned. A search chooses anew without each fold.
    X, y : arrays, or a file and the name of its targets
        Epochs of MNE bring their events as targets. A file that does not fit in memory is read anew for each fold.
    groups : array of shape (n_samples,) or the name of a column, default=None
        Each group is held out whole, also within a search.
    confounds : array of shape (n_samples,) or (n_samples, n_confounds), default=None
        Regressed out of the samples, as learned without the fold.
    cv : int, default=5
        The number of folds, which are shuffled, and stratified for classes.
    on_fold : function, default=None
        Is called with the number of folds that are done, and of all folds, before each of them.

    Returns
    -------
    Evaluation
        What ``write_model_page`` shows: ``folds`` are the scores, ``result`` compares all held-out predictions with the truth,
        and ``comparison`` compares the model with ridge and logistic regression on flat samples, where these are an array of at
        most five million numbers.

    Examples
    --------
    >>> from tracelearn import TraceNormRegressor
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> from tracelearn.report import evaluate
    >>> X, y, W = make_low_rank_regression(100, (6, 5), rank=1, random_state=0)
    >>> evaluation = evaluate(TraceNormRegressor(alpha=1.0), X, y)
    >>> evaluation.folds.count, bool(evaluation.folds.mean > 0.3), evaluation.comparison.names
    (5, True, ('model', 'ridge'))
    """
    check_model(model)
    samples = _Samples.of(X, y, groups, confounds)
    are_classes = is_classifier(model)
    measure = accuracy if are_classes else r_squared
    baseline = DummyClassifier() if are_classes else DummyRegressor()
    rivals = flat_rivals(are_classes) if samples.size <= _MOST_COMPARED else {}
    if "keep_moments" in model.get_params():
        model = clone(model).set_params(keep_moments=False)  # of few samples there are better forms than moments
    folds = make_folds(cv, samples.y, samples.groups, classifier=are_classes)  # shuffled: rows are often sorted
    scores, truths, predictions, bounds = [], [], [], []
    for number, (train, test) in enumerate(folds.splits):
        train, test = np.sort(train), np.sort(test)  # noqa: PLW2901
        if on_fold is not None:
            on_fold(number, len(folds))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PoorModelWarning)  # the score is about to say it
            # Of classes with few samples in a fold: the fit to all samples has warned of these.
            warnings.filterwarnings("ignore", r"Expected at least \d+ samples", UserWarning)
            fitted = samples.fit(clone(model), train)
        truths.append(samples.y[test] if are_classes else np.asarray(samples.y[test], dtype=float))
        predictions.append(samples.predict(fitted, test))
        bounds.append(samples.bounds(fitted, test))
        guess = baseline.fit(train, samples.y[train]).predict(test)
        scores_of_fold = [measure(truths[-1], guess), measure(truths[-1], predictions[-1])]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the rivals: their scores say how good they are
            clean = samples.cleaned(train) if rivals else samples
            for rival in rivals.values():
                scores_of_fold.append(measure(truths[-1], clean.predict(clean.fit(clone(rival), train), test)))
        scores.append(scores_of_fold)
    mean_of_guess, mean, *_ = np.mean(scores, axis=0)
    comparison = Comparison.of(("model", *rivals), np.array(scores).T[1:], folds.ratio, "score")
    error = corrected_error(comparison.scores[0], folds.ratio)
    classes = np.unique(samples.y) if are_classes else None
    result = compare(np.concatenate(truths), np.concatenate(predictions), classes, join_bounds(bounds))
    return Evaluation(
        result,
        f"{result.total:,} held-out samples",
        FoldScores(float(mean), float(error), len(folds), float(mean_of_guess)),
        comparison,
        Study(len(samples.y), 0 if samples.groups is None else len(np.unique(samples.groups))),
    )
