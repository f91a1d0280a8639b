"""The rules of this repository that a program can check, as functions from a source file to its offences.

Rules of the rules: they read text and syntax trees and never import what they read; an offence is one line
that says where and what. Words that must not appear in the repository are written here in two pieces, because
this file is read as well.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

FILE_LINES_MAX: Final = 500
FUNCTION_LINES_MAX: Final = 70
# One extension module: its classes share C structures, which Cython cannot spread over files without making
# them harder to read.
FILE_LINES_ALLOWED: Final = {"edged/core/_native.pyx": 1020}

# Modules that do I/O, read a clock, draw random numbers, or run things at the same time.
IMPURE_MODULES: Final = frozenset(
    (
        *("asyncio", "concurrent", "ctypes", "fcntl", "fileinput", "getpass", "glob", "http.client"),
        *("http.server", "io", "locale", "logging", "mmap", "multiprocessing", "os", "pathlib", "platform"),
        *("queue", "random", "resource", "sched", "secrets", "select", "selectors", "shelve", "shutil"),
        *("signal", "socket", "socketserver", "sqlite3", "ssl", "subprocess", "sys", "syslog", "tempfile"),
        *("termios", "threading", "time", "trio", "tty", "urllib.request", "uuid"),
    )
)
# Reading the environment at import is how the twins are chosen; nothing else in core may do it.
IMPURE_ALLOWED: Final = {("edged/core/twins.py", "os")}
# Functions that do I/O or read a clock without an import, or through a module that is pure otherwise.
IMPURE_CALLS: Final = frozenset(("open", "print", "input", "breakpoint", "exec", "eval"))
IMPURE_METHODS: Final = frozenset(("now", "utcnow", "today", "generate"))

BAD_NAMES: Final = frozenset(
    ("util", "utils", "common", "helper", "helpers", "base", "manager", "managers", "misc")
)
BAD_CLASS_ENDINGS: Final = ("Manager", "Helper", "Utils", "Util")


def _words(*halves: tuple[str, str]) -> str:
    return "|".join(re.escape(first + second) for first, second in halves)


_UNFINISHED = _words(("TO", "DO"), ("FIX", "ME"), ("XX", "X"), ("HA", "CK"))
UNFINISHED: Final = re.compile(rf"\b({_UNFINISHED})\b")
_PATHS = _words(("/wo", "rk/"), ("/ro", "ot/"), ("/tmp/", "ref"), ("/tmp/", "helper"), ("/opt/", "wheels"))
MACHINE_PATHS: Final = re.compile(rf"(?<![\w.])({_PATHS})|/home/(?!edged\b)\w+")
REGISTRY_HOSTS: Final = re.compile(
    _words(
        ("pypi", ".org"),
        ("files.python", "hosted.org"),
        ("registry.npm", "js.org"),
        ("npmmirror", ".com"),
        ("proxy.gol", "ang.org"),
        ("sum.gol", "ang.org"),
        ("deb.deb", "ian.org"),
        ("security.deb", "ian.org"),
        ("artifact", "registry"),
        ("artifact", "ory"),
    )
)
# How something was made is not what it is; a reader should find the latter only.
_PRODUCTION = _words(
    ("cla", "ude"),
    ("anth", "ropic"),
    ("open", "ai"),
    ("chat", "gpt"),
    ("co", "pilot"),
    ("language ", "model"),
    ("ll", "m"),
    ("ll", "ms"),
    ("ai-", "generated"),
    ("sub", "agent"),
    ("co-authored", "-by"),
    ("system ", "prompt"),
)
PRODUCTION_WORDS: Final = re.compile(rf"\b({_PRODUCTION})\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Source:
    """One file: its path from the top of the repository, with slashes, and its text."""

    path: str
    text: str

    @classmethod
    def read(cls, root: Path, file: Path) -> Source:
        """The source of a file below `root`."""
        return cls(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8"))

    @property
    def is_python(self) -> bool:
        """Whether a syntax tree can be had."""
        return self.path.endswith(".py")

    def tree(self) -> ast.Module:
        """The syntax tree, parsed once for all rules."""
        return _parse(self)

    def nodes(self) -> list[ast.AST]:
        """What the rules look at in the syntax tree, found once for all of them."""
        return _nodes(self)

    def line_of(self, position: int) -> int:
        """The number of the line at a place in the text."""
        return self.text.count("\n", 0, position) + 1


@cache
def _parse(source: Source) -> ast.Module:
    return ast.parse(source.text, source.path)


@cache
def _nodes(source: Source) -> list[ast.AST]:
    looked_at = (ast.stmt, ast.ExceptHandler, ast.Call)
    return [node for node in ast.walk(source.tree()) if isinstance(node, looked_at)]


def sizes(source: Source) -> Iterator[str]:
    """Files and functions that nobody can hold in the head."""
    count = source.text.count("\n")
    limit = FILE_LINES_ALLOWED.get(source.path, FILE_LINES_MAX)
    if count > limit:
        yield f"{source.path}: {count} lines, more than {limit}"
    if not source.is_python:
        return
    for node in source.nodes():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            count = node.end_lineno - node.lineno + 1
            if count > FUNCTION_LINES_MAX:
                yield f"{source.path}:{node.lineno}: {node.name}() has {count} lines of {FUNCTION_LINES_MAX}"


def docstrings(source: Source) -> Iterator[str]:
    """Modules and public classes that do not say what they are for. An empty file has nothing to say."""
    tree = source.tree()
    if tree.body and not ast.get_docstring(tree):
        yield f"{source.path}:1: the module has no docstring"
    if source.path.startswith("tests/"):
        return  # What a test needs beside it is explained by the test.
    for node in source.nodes():
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not ast.get_docstring(node):
            yield f"{source.path}:{node.lineno}: class {node.name} has no docstring"


def names(source: Source) -> Iterator[str]:
    """Names that say nothing about what is inside."""
    for part in source.path.split("/"):
        if part.removesuffix(".py").strip("_") in BAD_NAMES:
            yield f"{source.path}: {part!r} says nothing about what is in it"
    for node in source.nodes():
        if isinstance(node, ast.ClassDef) and node.name.endswith(BAD_CLASS_ENDINGS):
            yield f"{source.path}:{node.lineno}: class {node.name} is named for everything and nothing"


def swallowed(source: Source) -> Iterator[str]:
    """Exceptions that vanish: caught by a class that says nothing, and not dealt with."""
    for node in source.nodes():
        if isinstance(node, ast.ExceptHandler):
            caught = {"everything"} if node.type is None else set(_identifiers(node.type))
            too_much = caught & {"everything", "Exception", "BaseException"}
            idle = all(isinstance(line, ast.Pass | ast.Continue) or _is_text(line) for line in node.body)
            if "everything" in caught:
                yield f"{source.path}:{node.lineno}: except without a class"
            elif too_much and idle:
                yield f"{source.path}:{node.lineno}: except {too_much.pop()} that does nothing"
        elif isinstance(node, ast.Call) and "suppress" in set(_identifiers(node.func)):
            for argument in node.args:
                if {"Exception", "BaseException", "Cancelled"} & set(_identifiers(argument)):
                    yield f"{source.path}:{node.lineno}: suppress() of everything"


def _identifiers(node: ast.expr) -> Iterator[str]:
    for child in ast.walk(node):
        if isinstance(child, ast.Name):
            yield child.id
        elif isinstance(child, ast.Attribute):
            yield child.attr


def _is_text(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)


def words(source: Source) -> Iterator[str]:
    """Unfinished business, and what belongs to a machine or a making rather than to the project."""
    patterns = (
        ("unfinished", UNFINISHED),
        ("a path of some machine", MACHINE_PATHS),
        ("the host of a registry", REGISTRY_HOSTS),
        ("how it was produced", PRODUCTION_WORDS),
    )
    for meaning, pattern in patterns:
        for match in pattern.finditer(source.text):
            yield f"{source.path}:{source.line_of(match.start())}: {match[0]!r} ({meaning})"


def imports(source: Source) -> Iterator[tuple[int, str]]:
    """(line, module) of everything that a file imports, inside of functions as well."""
    if not source.is_python:
        for match in re.finditer(
            r"^\s*(?:from\s+([\w.]+)\s+c?import|c?import\s+([\w.]+))", source.text, re.M
        ):
            yield source.line_of(match.start()), match[1] or match[2]
        return
    for node in source.nodes():
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            package = source.path.rsplit("/", node.level)[0].replace("/", ".") + "." if node.level else ""
            module = package + (node.module or "")
            yield node.lineno, module
            # `from edged import hub` names a module, too. What is not one does no harm here.
            for alias in node.names:
                yield node.lineno, f"{module.rstrip('.')}.{alias.name}"


def is_within(module: str, prefixes: frozenset[str] | tuple[str, ...]) -> bool:
    """Whether a module is one of these, or inside of one."""
    return any(module == prefix or module.startswith(prefix + ".") for prefix in prefixes)


def forbidden_imports(source: Source, prefixes: tuple[str, ...]) -> Iterator[str]:
    """Imports of modules that a part of the repository must not know."""
    for line, module in imports(source):
        if is_within(module, prefixes):
            yield f"{source.path}:{line}: imports {module}"


def imports_outside(source: Source, ours: tuple[str, ...], allowed: tuple[str, ...]) -> Iterator[str]:
    """Imports from our own packages other than the allowed ones."""
    for line, module in imports(source):
        inside = is_within(module, ours) and module not in ours
        if inside and not is_within(module, allowed) and not any(a.startswith(module + ".") for a in allowed):
            yield f"{source.path}:{line}: imports {module}"


def impurities(source: Source) -> Iterator[str]:
    """What a pure file must not do: I/O, clocks, chance."""
    for line, module in imports(source):
        if is_within(module, IMPURE_MODULES) and (source.path, module.split(".")[0]) not in IMPURE_ALLOWED:
            yield f"{source.path}:{line}: imports {module}"
    if not source.is_python:
        return
    for node in source.nodes():
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            yield f"{source.path}:{node.lineno}: calls {node.func.id}()"
        elif isinstance(node.func, ast.Attribute) and node.func.attr in IMPURE_METHODS:
            yield f"{source.path}:{node.lineno}: calls {node.func.attr}()"
