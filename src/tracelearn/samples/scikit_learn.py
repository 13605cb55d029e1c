"""What we use of scikit-learn beyond its public names, in one place; tested with versions 1.6 to 1.9."""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

from sklearn.base import BaseEstimator, _fit_context
from sklearn.utils import _safe_indexing as take_rows
from sklearn.utils._metadata_requests import _raise_for_params as raise_for_params
from sklearn.utils._param_validation import Interval, InvalidParameterError, StrOptions, make_constraint
from sklearn.utils._set_output import _get_output_config as get_output_config
from sklearn.utils.metaestimators import _BaseComposition as BaseComposition
from sklearn.utils.validation import _check_feature_names as check_feature_names
from sklearn.utils.validation import _check_feature_names_in as check_feature_names_in
from sklearn.utils.validation import _check_n_features as check_n_features

from tracelearn.errors import brief

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


def bad_parameter(estimator: BaseEstimator) -> str | None:
    """Name a parameter that ``fit`` would refuse, and not its value, which may be of any size; None where all are good."""
    for name, constraints in getattr(estimator, "_parameter_constraints", {}).items():
        if constraints == "no_validation":
            continue
        value = getattr(estimator, name)
        if not any(make_constraint(constraint).is_satisfied_by(value) for constraint in constraints):
            return str(name)
    return None


def check_parameters(estimator: BaseEstimator) -> None:
    """Refuse parameters that an estimator does not take, as its ``fit`` does."""
    try:
        estimator._validate_params()
    except InvalidParameterError as error:
        raise _abridged(error, estimator) from None


def checks_parameters(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Let a method that learns refuse parameters that its estimator does not take, by scikit-learn's ``_fit_context``."""
    checked = _fit_context(prefer_skip_nested_validation=True)(fit)

    @wraps(fit)
    def abridging(estimator: Any, *args: Any, **options: Any) -> Any:
        try:
            return checked(estimator, *args, **options)
        except InvalidParameterError as error:
            raise _abridged(error, estimator) from None

    return abridging


def _abridged(error: InvalidParameterError, estimator: BaseEstimator) -> InvalidParameterError:
    """Shorten the value of a parameter that scikit-learn repeats whole, such as an array that took the place of a name."""
    value = getattr(estimator, bad_parameter(estimator) or "", None)
    return InvalidParameterError(str(error).replace(repr(value), brief(value)))


def leave_groups_to_splitter(router: Any) -> None:
    """Let metadata routing pass groups to the splitter where nobody said whether a method itself wants them."""
    for method in ("fit", "predict", "predict_proba", "predict_log_proba", "decision_function", "score"):
        requests = getattr(router._self_request, method).requests
        if "groups" in requests and requests["groups"] is None:
            requests["groups"] = False


def callback_context(estimator: Any, max_subtasks: int) -> Any:
    """Begin what scikit-learn's callbacks of an estimator are told; None where it has none."""
    if not getattr(estimator, "_skl_callbacks", None):
        return None
    return estimator._init_callback_context(max_subtasks=max_subtasks)


__all__ = [
    "BaseComposition",
    "CallbackSupportMixin",
    "Interval",
    "StrOptions",
    "bad_parameter",
    "callback_context",
    "check_feature_names",
    "check_feature_names_in",
    "check_n_features",
    "check_parameters",
    "checks_parameters",
    "get_output_config",
    "leave_groups_to_splitter",
    "make_constraint",
    "raise_for_params",
    "stand_in",
    "take_rows",
    "with_callbacks",
]
