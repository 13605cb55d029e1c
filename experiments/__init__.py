"""Published results, repeated: ``python -m experiments.paper``, ``experiments.completion`` and so on."""
