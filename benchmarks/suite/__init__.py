"""Objective and duality gap against time, for every problem and every solver: ``python -m benchmarks.suite``."""
