"""Samples too many to hold: blocks of (X, y, weight) from files, lazy arrays and iterables.

Nothing else in the package knows a file format. A pass over a source holds at most the block at work, the block read
ahead and the block being handed over, however many samples there are.
"""

from tracelearn.samples.recognise import as_source, open_source
from tracelearn.samples.source import Source, read_ahead

__all__ = ["Source", "as_source", "open_source", "read_ahead"]
