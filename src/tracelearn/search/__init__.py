"""Searching for views, strengths and losses by cross-validation."""
