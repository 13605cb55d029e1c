"""How fast it is, as ratios against others measured in one run: ``python -m benchmarks``, or ``make bench``."""
