"""The catalogue's tutorial: its blocks, and whether what they show was printed."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT, Block, blocks

PAGE = ROOT / "docs/tutorials/catalog-export.md"
TEXT = PAGE.read_text("utf-8")


def shown(needle: str) -> Block:
    """The block of the page that holds some words."""
    [found] = [block for block in blocks(PAGE) if needle in block.text]
    return found


def commands(block: Block) -> str:
    """What the reader types."""
    return "\n".join(line.removeprefix("$ ") for line in block.text.splitlines() if line.startswith("$ "))


def unanswered(block: Block, printed: str) -> list[str]:
    """The lines that a block shows and that were not printed; ``…`` stands for anything."""
    lines = [line.strip() for line in printed.splitlines()]
    return [
        line
        for line in block.text.splitlines()
        if not line.startswith("$ ") and not any(_pattern(line).fullmatch(one) for one in lines)
    ]


def _pattern(line: str) -> re.Pattern[str]:
    words = (".*".join(map(re.escape, word.split("…"))) for word in line.split())
    return re.compile(r"\s+".join(words))
