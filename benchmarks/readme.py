"""Copy the table of results.md into README.md, between its two marks: ``python -m benchmarks.readme``."""

from pathlib import Path

HERE = Path(__file__).parent
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"


def copy(results: Path = HERE / "results.md", target: Path = HERE.parent / "README.md") -> None:
    text = target.read_text()
    if BEGIN not in text or END not in text:
        raise SystemExit(f"{target.name} has no place for the table: add the lines {BEGIN} and {END}.")
    before, rest = text.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    target.write_text(f"{before}{BEGIN}\n{results.read_text()}{END}{after}")


if __name__ == "__main__":
    copy()
