"""x."""


def fit_command() -> None:
    """X."""
