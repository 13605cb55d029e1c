"""Answers with evidence: tests, intervals and time courses of models, as batches of problems over shared operators."""

from tracelearn.inference.permutation import PermutationTest, permutation_test

__all__ = ["PermutationTest", "permutation_test"]
