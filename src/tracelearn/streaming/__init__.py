"""Learning from streams: runs that can be killed and go on."""

from tracelearn.streaming.run import StreamReport, stream

__all__ = ["StreamReport", "stream"]
