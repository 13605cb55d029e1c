"""Published results, repeated: ``make experiments``, or ``python -m experiments.completion`` and so on."""
