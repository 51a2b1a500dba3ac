"""What `make docs` does to the pages beside rendering them.

They link to sources and tests, which lie outside of this folder: those are copied into the site, as text. The words
after the language of a fence (``fragment``, ``title=``) go, because MkDocs reads the language alone.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

DOCS = Path(__file__).parent.resolve()
ROOT = DOCS.parent

_FENCE = re.compile(r"^(```\w+) .+$", re.MULTILINE)
_UPWARD = re.compile(r"\]\((\.\./[^()#\s]+)(?:#[^()\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Called by MkDocs for each page."""

    def linked(match: re.Match[str]) -> str:
        target = (DOCS / page.file.src_uri).parent.joinpath(match[1]).resolve()
        if target.is_relative_to(DOCS):
            return match[0]
        copy = f"source/{target.relative_to(ROOT).as_posix()}.txt"
        if files.get_file_from_path(copy) is None:
            files.append(File.generated(config, copy, abs_src_path=str(target)))
        return f"]({posixpath.relpath(copy, posixpath.dirname(page.file.src_uri))})"

    return _UPWARD.sub(linked, _FENCE.sub(r"\1", markdown))
