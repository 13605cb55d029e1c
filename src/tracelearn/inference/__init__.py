"""Answers with evidence: tests, intervals and time courses of models, as batches of problems over shared operators."""

from tracelearn.inference.comparison import Comparison, compare
from tracelearn.inference.decoding import Decoding, decode_over_time, searchlight
from tracelearn.inference.intervals import Bootstrap, bootstrap
from tracelearn.inference.maps import MapTest, map_test
from tracelearn.inference.permutation import PermutationTest, permutation_test

__all__ = [
    "Bootstrap",
    "Comparison",
    "Decoding",
    "MapTest",
    "PermutationTest",
    "bootstrap",
    "compare",
    "decode_over_time",
    "map_test",
    "permutation_test",
    "searchlight",
]
