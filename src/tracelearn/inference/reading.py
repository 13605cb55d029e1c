"""What is read before a test: samples, targets, groups and folds, each checked once, with errors of one sentence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import get_scorer_names

from tracelearn.arrays.array_api import Array, array_namespace, is_sparse, move_to, to_numpy
from tracelearn.confounds import Regression
from tracelearn.errors import InputError, refuse
from tracelearn.estimators.base import TraceNormModel, reader_of, settings_of
from tracelearn.fitting import Settings
from tracelearn.losses import Loss
from tracelearn.moments import Moments
from tracelearn.samples.checks import check_finite
from tracelearn.samples.modes import Modes
from tracelearn.samples.per_sample import read_confounds, read_groups
from tracelearn.samples.reading import Spec, read
from tracelearn.samples.samples import Block, Samples
from tracelearn.samples.scikit_learn import check_parameters
from tracelearn.samples.source import as_source
from tracelearn.search.estimators import TensorSearch
from tracelearn.search.folds import Folds, make_folds
from tracelearn.search.linear_cv import LinearCV

__all__ = [
    "Reading",
    "ScoringPlan",
    "check_count",
    "check_model",
    "is_search",
    "is_trace_norm_model",
    "mode_number",
    "mode_of_axis",
    "name_of_score",
    "read_labels",
    "read_two_groups",
    "shares_system",
    "without_confounds",
]


# --- arguments --------------------------------------------------------------------------------------------------------


def check_count(value: Any, name: str, minimum: int = 1) -> int:
    """Return a parameter as an int; refuse what is no whole number, or is below the minimum."""
    refuse(
        isinstance(value, bool) or not isinstance(value, int | np.integer) or value < minimum,
        f"Expected {name} to be a whole number of at least {minimum}, got {value!r}.",
    )
    return int(value)


def check_model(model: Any) -> None:
    """Refuse what is no estimator."""
    refuse(
        not (hasattr(model, "fit") and hasattr(model, "get_params")),
        f"Expected an estimator, such as TraceNormClassifier(), got {model!r}.",
    )


def is_trace_norm_model(model: Any) -> bool:
    """Tell whether a model is a ``TraceNormRegressor`` or ``TraceNormClassifier``, or of a class derived from these."""
    return isinstance(model, TraceNormModel)


def is_search(model: Any) -> bool:
    """Tell whether a model chooses by cross-validation: a ``TensorRegressor``, a ``TraceNormRegressorCV``, or for classes."""
    return isinstance(model, TensorSearch | LinearCV)


def shares_system(model: Any) -> bool:
    """Tell whether fits to permuted targets share one system; class weights change it, as they move with the labels."""
    return is_trace_norm_model(model) and getattr(model, "class_weight", None) is None


def name_of_score(scoring: Any, *, classifier: bool) -> str:
    """Name a score, and refuse one that is not known."""
    if scoring is None:
        return "accuracy" if classifier else "r2"
    if isinstance(scoring, str):
        refuse(
            scoring not in get_scorer_names(),
            f"Expected a score that scikit-learn knows, such as 'roc_auc', got {scoring!r}.",
        )
        return scoring
    refuse(not callable(scoring), f"Expected scoring to be a name, a function or None, got {scoring!r}.")
    return str(getattr(scoring, "__name__", "score"))


def read_labels(X: Any, y: Any) -> Array:
    """Return targets as they came, labels or numbers, as an array of NumPy; refuse none, or another number than of samples."""
    refuse(y is None, "Expected one target for each sample, got none: pass y.")
    labels = to_numpy(as_source(X, y).all_targets()[0])
    n_samples = np.shape(X)[:1]
    if n_samples and len(labels) != n_samples[0]:
        raise InputError(
            f"Expected one target for each of {n_samples[0]} samples, got {len(labels)}: samples and targets have inconsistent "
            "numbers of samples."
        )
    if labels.dtype.kind == "f":
        check_finite(labels, "y")
    return labels


def read_two_groups(groups: Any, n_samples: int) -> Array | None:
    """Check the groups of samples, and refuse a single group; None where no groups are given."""
    labels = read_groups(groups, n_samples)
    refuse(
        labels is not None and len(np.unique(labels)) < 2, "Expected at least two groups, got one: pass groups=None."
    )
    return labels


def mode_number(mode: Any, modes: Modes | None, argument: str) -> Any:
    """Find the number of a mode that was called by its name; numbers stay as they are."""
    if not isinstance(mode, str):
        return mode
    names = [named.name for named in modes or ()]
    if mode not in names:
        raise InputError(
            f"Expected {argument} to be a number or the name of a mode ({', '.join(names) or 'they have none'}), got {mode!r}."
        )
    return names.index(mode)


def mode_of_axis(axis: int | str, modes: Modes | None, n_modes: int) -> int:
    """Find the number of the mode of a sample that an axis of X is, of which 0 is samples; or of its name."""
    number = 1 + mode_number(axis, modes, "axis") if isinstance(axis, str) else axis
    mode = number - 1 if number > 0 else number + n_modes
    refuse(
        number == 0 or not 0 <= mode < n_modes,
        f"Expected axis to be one of X after the first, samples, which is 0, got {axis} for {n_modes + 1} axes.",
    )
    return mode


def without_confounds(X: Array, confounds: Array | None, weight: Array) -> Array:
    """Regress confounds (n, q) out of samples of NumPy, as learned from samples of some weight (n,)."""
    if confounds is None:
        return X
    rows = np.reshape(X, (len(X), -1))
    regression = Regression.of(Moments.of(confounds, rows, weight))
    return np.reshape(regression.residual(rows, confounds), np.shape(X))


@dataclass(frozen=True, eq=False)
class ScoringPlan:
    """What held-out scores begin with: targets, groups, confounds and folds, checked, and the name of the score."""

    labels: Array
    groups: Array | None
    confounds: Array | None
    folds: Folds
    score_name: str

    @classmethod
    def of(
        cls,
        model: Any,
        X: Any,
        y: Any,
        *,
        cv: Any,
        groups: Any,
        confounds: Any,
        scoring: Any,
        random_state: Any,
        repeats: int = 1,
    ) -> ScoringPlan:
        """Read what was passed with a model, and draw folds, of groups whole."""
        labels = read_labels(X, y)
        groups = read_two_groups(groups, len(labels))
        confounds = None if confounds is None else read_confounds(confounds, len(labels))
        classifier = is_classifier(model)
        folds = make_folds(cv, labels, groups, random_state=random_state, classifier=classifier, repeats=repeats)
        return cls(labels, groups, confounds, folds, name_of_score(scoring, classifier=classifier))

    def cleaned(self, X: Array, train: Array) -> Array:
        """Regress the confounds, if there are any, out of all samples, as learned from the training samples of a fold."""
        weight = np.bincount(train, minlength=len(X)).astype(float)
        return without_confounds(X, self.confounds, weight)


# --- a model and its samples ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Reading:
    """What a batch of fits begins with: the settings of a model, and samples in memory, checked once."""

    spec: Spec
    settings: Settings
    samples: Samples
    labels: Array  # (n,) or (n, K), targets as they came, of NumPy
    loss: Loss  # of the settings; for several classes it may be another than their name says

    @classmethod
    def of(cls, model: Any, X: Any, y: Any, confounds: Any = None) -> Reading:
        """Read samples, targets and confounds as the ``fit`` of a model does; the model itself stays as it is."""
        check_parameters(model)
        settings = settings_of(model)
        source = as_source(X, y, confounds=confounds)
        refuse(not source.in_memory, "Expected samples in memory, got others: pass an array, or fewer samples.")
        spec, samples = read(source, reader_of(model))
        samples = samples.checked()
        refuse(
            settings.scaling and is_sparse(samples.like),
            "Expected dense samples with scaling='modes', got a sparse matrix: use scaling=None.",
        )
        labels = to_numpy(source.all_targets()[0])
        labels = labels if spec.classes is None else labels.ravel()
        return cls(spec, settings, samples, labels, settings.loss_of(spec))

    @property
    def block(self) -> Block:
        """The one block that holds all samples: they are in memory."""
        (block,) = self.samples.blocks
        return block  # type: ignore[no-any-return]

    @property
    def n_samples(self) -> int:
        """The number of samples."""
        return len(self.labels)

    @property
    def are_classes(self) -> bool:
        """Whether targets are classes."""
        return self.spec.classes is not None

    @cached_property
    def codes(self) -> Array:
        """Targets as scores are compared with them: the numbers of classes (n,), or numbers (n, K)."""
        if not self.are_classes:
            return to_numpy(self.block.Y)
        return np.searchsorted(to_numpy(self.spec.classes), self.labels)

    def cleaned(self, train: Array) -> Reading:
        """Regress the confounds, if there are any, out of all samples, as learned from the samples of the index ``train``."""
        if not self.samples.n_confounds:
            return self
        regression = self.take(train).regression(centre=self.settings.fit_intercept)
        return replace(self, samples=self.samples.residual(regression))

    def take(self, index: Array) -> Samples:
        """Keep the samples of an index (m,)."""
        return Samples.of(self.block.take(index), self.samples.shape)

    def with_targets_of(self, index: Array, order: Array) -> Samples:
        """Keep the samples of an index (m,), with S sets of targets side by side: those of the samples ``order`` (S, m)."""
        sets = to_numpy(self.block.Y)[order]  # (S, m, K)
        columns = np.moveaxis(sets, 0, 1).reshape(len(index), -1)
        block = replace(self.block.take(index), Y=move_to(columns, self.block.Y))
        return Samples.of(block, self.samples.shape)

    def as_tensors(self, rows: Array) -> Array:
        """View weights (K, p) as tensors of the shape of a sample, with an axis of targets unless there is a single one."""
        targets = () if self.spec.is_single else (self.spec.n_targets,)
        return array_namespace(rows).reshape(rows, (*targets, *self.spec.sample_shape))
