"""x."""


def inspect_command() -> None:
    """X."""
