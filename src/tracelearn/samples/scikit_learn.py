"""What we use of scikit-learn beyond its public names, in one place; tested with versions 1.6 to 1.9."""

from functools import cache
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.base import _fit_context as fit_context
from sklearn.utils._metadata_requests import _raise_for_params as raise_for_params
from sklearn.utils._param_validation import Interval, StrOptions, make_constraint
from sklearn.utils._set_output import _get_output_config as get_output_config
from sklearn.utils.metaestimators import _BaseComposition as BaseComposition
from sklearn.utils.validation import _check_feature_names as check_feature_names
from sklearn.utils.validation import _check_feature_names_in as check_feature_names_in
from sklearn.utils.validation import _check_n_features as check_n_features

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # before version 1.9 there are none

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Has no callbacks."""

    def with_callbacks(method: Any) -> Any:  # type: ignore[misc]
        """Leave a method as it is."""
        return method


@cache
def _stand_in_class(name: str) -> type[BaseEstimator]:
    return type(name, (BaseEstimator,), {})


def stand_in(name: str, n_features: int | None = None, feature_names: Any = None) -> BaseEstimator:
    """Make an object of an estimator's name, on which scikit-learn's checks may write what they learn of samples.

    Parameters
    ----------
    name : of the estimator, as errors call it
    n_features, feature_names : what was learned before, if anything was
    """
    holder = _stand_in_class(name)()
    if n_features is not None:
        holder.n_features_in_ = n_features
    if feature_names is not None:
        holder.feature_names_in_ = feature_names
    return holder


def _holds_values(value: Any) -> bool:
    """Tell whether a parameter is a list of anything but estimators, alone or with their names."""
    if not isinstance(value, list | tuple):
        return False
    members = [member[-1] if isinstance(member, tuple) and member else member for member in value]
    return not all(member is None or isinstance(member, str) or hasattr(member, "get_params") for member in members)


def bad_parameter(estimator: BaseEstimator) -> str | None:
    """Name a parameter that ``fit`` would refuse, and not its value, which may be of any size; None where all are good."""
    for name, constraints in getattr(estimator, "_parameter_constraints", {}).items():
        value = getattr(estimator, name)
        if constraints == "no_validation":  # a name, or an object that ``fit`` looks at itself
            is_good = not isinstance(value, dict | np.ndarray) and not _holds_values(value)
        else:
            is_good = any(make_constraint(constraint).is_satisfied_by(value) for constraint in constraints)
        if not is_good:
            return str(name)
    return None


def check_parameters(estimator: BaseEstimator) -> None:
    """Refuse parameters that an estimator does not take, as its ``fit`` does."""
    estimator._validate_params()


__all__ = [
    "BaseComposition",
    "CallbackSupportMixin",
    "Interval",
    "StrOptions",
    "bad_parameter",
    "check_feature_names",
    "check_feature_names_in",
    "check_n_features",
    "check_parameters",
    "fit_context",
    "get_output_config",
    "make_constraint",
    "raise_for_params",
    "stand_in",
    "with_callbacks",
]
