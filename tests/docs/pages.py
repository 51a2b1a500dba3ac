"""The Markdown of this repository, read: its pages, their headings, links and fenced blocks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>```+)(?P<info>[^`]*)$")
_HEADING = re.compile(r"#{1,6} +(.+?)\s*$")
_LINK = re.compile(r"(?<!!)\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<target>[^()\s]+)\)")
_CODE = re.compile(r"`[^`]*`")


class Block(NamedTuple):
    """A fenced block.

    Args:
        page: where it stands.
        line: of its opening fence.
        language: first word of the info string.
        marks: the other words of it, such as ``fragment`` and ``title="app.py"``.
        text: without the fences.
    """

    page: Path
    line: int
    language: str
    marks: tuple[str, ...]
    text: str

    @property
    def fragment(self) -> bool:
        """Not complete enough to be run."""
        return "fragment" in self.marks

    @property
    def file(self) -> str | None:
        """The file that the reader is asked to save it as."""
        return next((mark[7:-1] for mark in self.marks if mark.startswith('title="')), None)

    @property
    def place(self) -> str:
        return f"{name(self.page)}:{self.line}"


class Link(NamedTuple):
    """A link to a place in this repository: a path relative to the page, an anchor, or both."""

    page: Path
    line: int
    text: str
    path: str
    anchor: str

    @property
    def target(self) -> Path:
        return (self.page.parent / self.path).resolve() if self.path else self.page


def pages() -> list[Path]:
    """Every page, in a stable order."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "proof").glob("*.md"))]


def name(page: Path) -> str:
    """Its path in the repository."""
    return page.relative_to(ROOT).as_posix()


@cache
def blocks(page: Path) -> tuple[Block, ...]:
    """Its fenced blocks, from the top."""
    return tuple(_blocks(page))


@cache
def anchors(page: Path) -> frozenset[str]:
    """What the headings of a page are called in a link, as GitHub and MkDocs make it."""
    seen: Counter[str] = Counter()
    found = set()
    for _, text in _prose(page):
        if heading := _HEADING.match(text):
            slug = _slug(heading[1])
            found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1
    return frozenset(found)


def links(page: Path) -> list[Link]:
    """Its links to places in this repository; those to other sites are nobody's test."""
    found = []
    for line, text in _prose(page):
        for match in _LINK.finditer(text):
            path, _, anchor = match["target"].partition("#")
            if "://" not in match["target"] and not match["target"].startswith("mailto:"):
                found.append(Link(page, line, match["text"].strip("`"), path, anchor))
    return found


def _slug(heading: str) -> str:
    text = _LINK.sub(lambda match: match["text"], heading).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-")


def _blocks(page: Path) -> Iterator[Block]:
    opened: re.Match[str] | None = None
    start = 0
    inside: list[str] = []
    for number, text in _lines(page):
        fence = _FENCE.match(text)
        if opened is None:
            if fence:
                opened, start, inside = fence, number, []
        elif fence and fence["fence"] == opened["fence"] and not fence["info"].strip():
            words = opened["info"].split() or [""]
            yield Block(page, start, words[0], tuple(words[1:]), "\n".join(inside) + "\n")
            opened = None
        else:
            inside.append(text.removeprefix(opened["indent"]))
    if opened is not None:
        raise ValueError(f"{name(page)}:{start}: this block has no end")


def _prose(page: Path) -> Iterator[tuple[int, str]]:
    """The lines outside of fenced blocks; code in a line is blank unless it is a heading's or the text of a link."""
    fenced = {line for block in blocks(page) for line in _extent(block)}
    for number, text in _lines(page):
        if number not in fenced:
            yield number, text if _HEADING.match(text) else _without_code(text)


def _without_code(text: str) -> str:
    return _CODE.sub(lambda match: match[0] if text.startswith("](", match.end()) else " " * len(match[0]), text)


def _extent(block: Block) -> range:
    return range(block.line, block.line + block.text.count("\n") + 2)


def _lines(page: Path) -> Iterator[tuple[int, str]]:
    return enumerate(page.read_text("utf-8").splitlines(), 1)
