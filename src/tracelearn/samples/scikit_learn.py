"""What we use of scikit-learn beyond its public names, in one place; tested with versions 1.6 to 1.9."""

from sklearn.base import _fit_context as fit_context
from sklearn.utils._metadata_requests import _raise_for_params as raise_for_params
from sklearn.utils._param_validation import Interval, StrOptions, make_constraint
from sklearn.utils._set_output import _get_output_config as get_output_config
from sklearn.utils.metaestimators import _BaseComposition as BaseComposition
from sklearn.utils.validation import _check_feature_names as check_feature_names
from sklearn.utils.validation import _check_feature_names_in as check_feature_names_in
from sklearn.utils.validation import _check_n_features as check_n_features
from sklearn.utils.validation import _check_sample_weight as check_sample_weight

__all__ = [
    "BaseComposition",
    "Interval",
    "StrOptions",
    "check_feature_names",
    "check_feature_names_in",
    "check_n_features",
    "check_sample_weight",
    "fit_context",
    "get_output_config",
    "make_constraint",
    "raise_for_params",
]
