"""Sphinx set-up: `make docs` builds docs/_build/html and treats every warning as an error."""

import inspect
from importlib import import_module
from pathlib import Path

from tracelearn import __version__

project = "tracelearn"
author = "The tracelearn developers"
copyright = "2026, the tracelearn developers"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 2
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]
autosummary_generate = True
templates_path = ["_templates"]
numpydoc_show_class_members = False


def own_members(kind):
    """List methods and properties of a class that this package defines, inherited ones too; scikit-learn's are left out."""
    members = {}
    for home in kind.__mro__:
        if home.__module__.startswith("tracelearn"):
            for member, value in vars(home).items():
                members.setdefault(member, value)
    documented = {
        member: value
        for member, value in members.items()
        if not member.startswith("_")
        and not member.endswith("_request")
        and inspect.getdoc(getattr(kind, member, None))
    }
    properties = [member for member, value in documented.items() if isinstance(value, property)]
    methods = [member for member in documented if callable(getattr(kind, member)) and member not in properties]
    return {"methods": methods, "properties": properties}


_PUBLIC = ("", ".losses", ".penalties", ".inference", ".plotting", ".report", ".datasets", ".paper")
_CLASSES = {
    f"tracelearn{module}.{name}": getattr(import_module(f"tracelearn{module}"), name)
    for module in _PUBLIC
    for name in dir(import_module(f"tracelearn{module}"))
}
autosummary_context = {
    "own_members": {name: own_members(kind) for name, kind in _CLASSES.items() if inspect.isclass(kind)}
}
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # parameters say it in words; a signature full of Any does not

# Files plot_*.py run when the documentation is built, and an example that fails is a failed build; others are only shown.
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "min_reported_time": 0,
    "thumbnail_size": (600, 420),
    "default_thumb_file": str(Path(__file__).parent / "images" / "architecture.svg"),
    "show_signature": False,
    "remove_config_comments": True,
}

html_theme = "pydata_sphinx_theme"
html_title = "tracelearn"
html_theme_options = {
    "navigation_with_keys": False,
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "header_links_before_dropdown": 3,
}
html_static_path = ["_static"]
html_css_files = ["wide.css"]
# A page without pages below it has nothing to show in a column at the left, and the code of examples needs the room.
_HERE = Path(__file__).parent
html_sidebars = {
    "**": ["sidebar-nav-bs"],
    **{page.stem: [] for page in _HERE.glob("*.md")},
    **{f"gallery/{example.stem}": [] for example in (_HERE.parent / "examples").glob("*.py")},
}
