"""What Python source can do with data that is more than to read it: run it, or make objects of it that it names itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator

MODULES = frozenset(
    {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "jsonpickle", "marshal", "shelve", "joblib", "yaml"}
    | {"code", "codeop", "runpy", "imp", "multiprocessing", "concurrent.futures.process"}
)
"""Modules that make objects of text or bytes, or run them; those of processes send pickles to each other."""

CALLS = frozenset({"eval", "exec", "compile", "__import__", "import_module", "os.system", "os.popen"})
"""Functions that run text; with a module's name in front where others are called alike."""

HARMLESS = frozenset({"re.compile"})


def dangers(source: str) -> list[tuple[int, str]]:
    """Lines in which a source does such a thing, and what it is."""
    return sorted(found for node in ast.walk(ast.parse(source)) for found in _found(node))


def _found(node: ast.AST) -> Iterator[tuple[int, str]]:
    match node:
        case ast.Import():
            yield from ((node.lineno, alias.name) for alias in node.names if _is_danger(alias.name))
        case ast.ImportFrom(module=str(module)):
            names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
            yield from ((node.lineno, name) for name in names if _is_danger(name))
        case ast.Call(func=ast.Name(id=name)) if name in CALLS:
            yield node.lineno, name
        case ast.Call(func=ast.Attribute(value=value, attr=name)):
            full = f"{value.id}.{name}" if isinstance(value, ast.Name) else name
            if full not in HARMLESS and CALLS & {name, full}:
                yield node.lineno, name
        case ast.keyword(arg="shell", value=ast.Constant(value=True)):
            yield node.lineno, "shell"
        case _:
            return


def _is_danger(module: str) -> bool:
    return module in MODULES or module.partition(".")[0] in MODULES
