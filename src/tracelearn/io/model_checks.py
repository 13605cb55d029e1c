"""Check that a model from a file can predict, on samples of zeros.

Nothing else is checked: the moments of a forged file, or its record of a search, may be false or of another form. ``fit``,
``merge`` and reports refuse that themselves, or fail.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from tracelearn.errors import expect
from tracelearn.estimators.lagged import LaggedRegressor

__all__ = ["check_use"]

_LARGEST_SAMPLE = 1 << 20  # entries of the largest samples that are predicted: a file can claim a shape of any size
_N_SAMPLES = 5  # several, so that what fits one sample by chance is noticed


def check_use(model: Any) -> None:
    """Let a fitted model predict samples of zeros, as its user will: any exception means that it is damaged."""
    first = model.steps[0][1] if isinstance(model, Pipeline) else model
    is_lagged = isinstance(first, LaggedRegressor)
    shape = getattr(first, "sample_shape_", None)
    if shape is None:  # not fitted
        return
    n_samples = _N_SAMPLES
    if is_lagged:
        n_samples += len(first.lags_)
        shape = (first.n_features_in_,)
    expect(math.prod(shape) > 0, "samples of no entry")
    if math.prod(shape) * n_samples > _N_SAMPLES * _LARGEST_SAMPLE:
        return
    samples = np.zeros((n_samples, *shape), getattr(getattr(model, "coef_", None), "dtype", float))
    metadata: dict[str, Any] = {}
    if hasattr(model, "confound_coef_"):
        metadata["confounds"] = np.zeros((n_samples, np.shape(model.confound_coef_)[-1]))
    if getattr(model, "alignment_", None) is not None:
        metadata["groups"] = np.zeros(n_samples)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("predict", "decision_function", "predict_proba", "transform"):
            if hasattr(model, name):
                answer = np.asarray(getattr(model, name)(samples, **metadata))
                expect(len(answer) == n_samples, f"{name} of other samples")
                if name in ("decision_function", "predict_proba"):
                    # Labels are looked up by the column of the largest score: not all of them occur with zeros.
                    n_classes = len(model.classes_)
                    is_row = n_classes == 2 and name == "decision_function"
                    expect(np.unique(model.classes_).shape == np.shape(model.classes_), "classes that are the same")
                    expect(n_classes > 1 and answer.shape[1:] == (() if is_row else (n_classes,)), "other classes")
                if answer.dtype.kind == "f":
                    is_good = np.any if is_lagged else np.all  # nothing precedes the first samples of a recording
                    expect(is_good(np.isfinite(answer)), f"{name} that is not finite")
