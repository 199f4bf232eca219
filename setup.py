"""The README as an index shows it: beside it there are no other files, to which its links could lead.

With an address of the repository in pyproject.toml (``[project.urls]``, ``Source = "..."``) links lead there; without
one, they are their text. All else is in pyproject.toml.
"""

import re
from pathlib import Path

from setuptools import setup

LINK = re.compile(r"(!?)\[([^]]*)\]\((?!\w+:)([^)]+)\)")
SOURCE = re.search(r'^Source = "(.+)"$', Path("pyproject.toml").read_text(), re.MULTILINE)


def shown(link: re.Match[str]) -> str:
    """Return what stands on an index for a link to a file, or for a picture."""
    mark, text, place = link.groups()
    if SOURCE is None:
        return "" if mark else text
    return f"{mark}[{text}]({SOURCE[1]}/{'raw' if mark else 'blob'}/main/{place})"


setup(long_description=LINK.sub(shown, Path("README.md").read_text()), long_description_content_type="text/markdown")
