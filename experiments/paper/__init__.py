"""The rank identification experiment of the paper's section 6: ``python -m experiments.paper``.

``experiment.run`` learns and measures; ``claims``, ``figures`` and ``page`` read its results, a plain dictionary.
"""
