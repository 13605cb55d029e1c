"""Displays of what was learned, in the manner of scikit-learn: ``SomeDisplay.from_estimator(model)`` draws (extra ``plot``).

Every display keeps the numbers that it draws as attributes, draws on axes that are given or on a figure of its own, and is
returned by what draws it. Colours are those of Okabe and Ito (2008), together with markers and dashes, for every eye.
"""

from tracelearn.plotting.curves import ConvergenceDisplay, PathDisplay, PrequentialDisplay
from tracelearn.plotting.views import ViewsDisplay
from tracelearn.plotting.weights import ModeFactorsDisplay, ModeSpectrumDisplay, WeightsDisplay

__all__ = [
    "ConvergenceDisplay",
    "ModeFactorsDisplay",
    "ModeSpectrumDisplay",
    "PathDisplay",
    "PrequentialDisplay",
    "ViewsDisplay",
    "WeightsDisplay",
]
