"""x."""


def predict_command() -> None:
    """X."""
