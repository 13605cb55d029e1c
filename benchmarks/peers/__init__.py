"""Other libraries, each stating the same problem as well as it can.

``solve(problem, watch)`` starts from the samples, as our fit does, and shows its iterates to ``watch``.
"""
