"""Samples: in memory, from iterables, on a cluster or from a source; checked, and summed over blocks."""

from tracelearn.samples.source import Source, as_source

__all__ = ["Source", "as_source"]
