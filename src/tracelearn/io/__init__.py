"""Readers of data files: samples in any format, as blocks."""

from tracelearn.io.opening import as_source, open_source

__all__ = ["as_source", "open_source"]
