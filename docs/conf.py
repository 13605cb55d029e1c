"""Sphinx set-up: `make docs` builds docs/_build/html and treats every warning as an error."""

from tracelearn import __version__

project = "tracelearn"
author = "The tracelearn developers"
copyright = "2026, the tracelearn developers"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.mathjax", "numpydoc"]
myst_enable_extensions = ["dollarmath", "amsmath"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]
autosummary_generate = True
templates_path = ["_templates"]
numpydoc_show_class_members = False
autodoc_member_order = "bysource"

html_theme = "pydata_sphinx_theme"
html_title = "tracelearn"
html_theme_options = {"navigation_with_keys": False, "show_prev_next": False, "secondary_sidebar_items": ["page-toc"]}
html_sidebars = {"**": ["sidebar-nav-bs"]}
