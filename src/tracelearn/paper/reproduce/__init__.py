"""The rank identification experiment of the paper's section 6, from the data to a page that a person can read.

``experiment.run`` learns and measures and knows nothing of drawing; ``figures`` and ``page`` read its results, a plain
dictionary, and nothing else. The optional libraries are imported where they are used.
"""

from tracelearn.paper.reproduce.experiment import run
from tracelearn.paper.reproduce.settings import Settings

__all__ = ["Settings", "run"]
