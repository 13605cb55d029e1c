"""Samples: in memory, in files, from iterables, on a cluster; checked, and summed over blocks."""

from tracelearn.samples.opening import as_source, open_source
from tracelearn.samples.source import Source, read_ahead

__all__ = ["Source", "as_source", "open_source", "read_ahead"]
