"""Metadata routing of estimators with cross-validation: what the splitter asks for goes to it, through every level."""

from __future__ import annotations

from typing import Any

from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing

from tracelearn.arrays.array_api import is_non_numpy, to_numpy
from tracelearn.samples.scikit_learn import leave_groups_to_splitter, raise_for_params

__all__ = ["RoutesToSplitter", "params_for_splitter"]


def params_for_splitter(estimator: Any, params: dict[str, Any]) -> dict[str, Any]:
    """Gather what the splitter of an estimator asks for under other names than ``fit`` has."""
    if not params:
        return {}
    raise_for_params(params, estimator, "fit")
    routed = dict(process_routing(estimator, "fit", **params).splitter.split)
    return {name: to_numpy(value) if is_non_numpy(value) else value for name, value in routed.items()}


class RoutesToSplitter:
    """An estimator whose parameter ``cv`` may be a splitter that takes metadata."""

    cv: Any

    def get_metadata_routing(self) -> MetadataRouter:
        """Tell scikit-learn who takes what: ``fit`` the weights of samples if asked to, the splitter its groups.

        A splitter such as ``GroupKFold`` gets ``groups`` without further request, as in scikit-learn's own estimators with
        cross-validation; ``set_fit_request(groups=True)`` is for splitters that do not say what they need.
        """
        router = MetadataRouter(owner=self).add_self_request(self)
        leave_groups_to_splitter(router)
        if hasattr(self.cv, "split"):
            router.add(splitter=self.cv, method_mapping=MethodMapping().add(caller="fit", callee="split"))
        return router
