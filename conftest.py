"""What holds for every test, the examples in docstrings and pages included."""

import sys

import pytest


@pytest.fixture(autouse=True)
def no_open_figures():
    """Close the figures of a test when it ends: matplotlib warns from the twentieth on, in whichever test that is."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
