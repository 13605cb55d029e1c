"""Accuracy on real data under one protocol: every set, every competitor, also where we lose.

``python -m benchmarks.panel`` runs it; ``--data FOLDER`` adds sets of your own.
"""
