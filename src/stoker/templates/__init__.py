"""Packages to start from: `stoker init` lays one down.

A template is a folder here of files that end with `.tmpl`, so that no tool takes them for code of ours. They are laid
down under the same names without the ending, word for word but for two: `${name}` is the project's name and
`${package}` the same as a Python name; a folder called PACKAGE gets that name. Everything else with a dollar sign is
left alone, and what begins with `#!` can be executed.
"""

from stoker.templates.project import TEMPLATES, Template, available, lay_down

__all__ = ["TEMPLATES", "Template", "available", "lay_down"]
