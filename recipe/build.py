"""Build the conda package and run its tests: ``make conda-check``, from the channel conda-forge.

``CHANNEL=local`` makes a channel of this interpreter and of what pip has installed in its environment, for machines that cannot
reach conda-forge. It shows that the recipe builds and that its tests pass, and not which packages conda-forge has.
"""

import hashlib
import json
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from rattler_build import FileEntry, Package, Stage0Recipe, ToolConfiguration, assemble_package

HERE = Path(__file__).parent
PLATFORM = "linux-64"


def _interpreter() -> list[FileEntry]:
    """List the files of this interpreter, without what was installed into it."""
    base, version = Path(sys.base_prefix), f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = base / "lib" / version
    kept = [path for path in library.rglob("*") if not {"site-packages", "test", "__pycache__"} & set(path.parts)]
    kept += base.glob("lib/libpython*")
    found = [FileEntry.from_paths(path, path.relative_to(base)) for path in kept if path.is_file()]
    binary = (base / "bin" / version).resolve()
    return found + [FileEntry.from_paths(binary, f"bin/{name}") for name in ("python", "python3", version)]


def _modules(one: Distribution) -> list[FileEntry]:
    """List the files of a distribution, but for scripts and those of other places."""
    kept = [file for file in one.files or () if ".." not in file.parts and "__pycache__" not in file.parts]
    return [FileEntry.from_paths(file.locate(), f"site-packages/{file}") for file in kept]


def _needs(one: Distribution) -> list[str]:
    """List what a distribution needs without any extra."""
    wanted = [Requirement(text) for text in one.requires or ()]
    kept = [own for own in wanted if own.marker is None or own.marker.evaluate({"extra": ""})]
    return ["python", *sorted({canonicalize_name(own.name) for own in kept})]


def local_channel(folder: Path) -> str:
    """Make a channel of this environment; return its address."""
    version = ".".join(map(str, sys.version_info[:3]))
    for name in (PLATFORM, "noarch"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    options = {"build_string": "0", "compression_level": 1, "detect_prefix": False}
    assemble_package("python", version, PLATFORM, output_dir=folder / PLATFORM, files=_interpreter(), **options)
    for one in distributions():
        name = canonicalize_name(one.name)
        if name != "tracelearn":
            options |= {"depends": _needs(one), "noarch": "python", "files": _modules(one)}
            assemble_package(name, one.version, "noarch", output_dir=folder / "noarch", **options)
    for place in (folder / PLATFORM, folder / "noarch"):
        index = {path.name: _record(path, place.name) for path in place.glob("**/*.conda")}
        (place / "repodata.json").write_text(json.dumps({"packages": {}, "packages.conda": index}))
    return folder.resolve().as_uri()


def _record(path: Path, platform: str) -> dict[str, object]:
    """Describe a package as the index of a channel does."""
    own, content = Package.from_file(path), path.read_bytes()
    return {
        "name": own.name,
        "version": own.version,
        "build": own.build_string,
        "build_number": own.build_number,
        "depends": own.depends,
        "subdir": platform,
        "noarch": "python" if platform == "noarch" else None,
        "sha256": hashlib.sha256(content).hexdigest(),
        "size": len(content),
    }


def main(channel: str, out: Path) -> None:
    """Build the package of the recipe from a channel, and test it."""
    address = local_channel(out / "channel") if channel == "local" else channel
    recipe, tested = Stage0Recipe.from_file(HERE / "recipe.yaml"), ToolConfiguration(test_strategy="native")
    for built in recipe.run_build(tool_config=tested, output_dir=out, channels=[address]):
        print(*built.packages)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
