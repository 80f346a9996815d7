"""Generate the reference: one page a module, and fail the build on any public name without a docstring."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

SOURCE = Path(__file__).parents[2] / "src"


def on_files(files: Files, config: Any) -> Files:
    """Add a page for every module that has public names, and an index of them."""
    entries: list[str] = []
    for path in sorted((SOURCE / "breadth").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if missing := list(undocumented(tree)):
            raise PluginError(f"{path.relative_to(SOURCE)}: undocumented public names: {', '.join(missing)}")
        if not any(public(tree.body)) or path.name in ("__main__.py", "__init__.py"):
            continue
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        purpose = (ast.get_docstring(tree) or "").splitlines()[0]
        entries.append(f"| [`{module}`]({module}.md) | {purpose} |")
        files.append(File.generated(config, f"reference/{module}.md", content=f"# {module}\n\n::: {module}\n"))
    listing = "\n".join(["# Reference", "", "| module | what it is for |", "|---|---|", *entries, ""])
    files.append(File.generated(config, "reference/index.md", content=listing))
    return files


def public(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """Yield the public functions and classes of a body."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node


def undocumented(tree: ast.Module) -> Iterator[str]:
    """Yield public functions, classes, methods and dataclass fields without a docstring."""
    for node in public(tree.body):
        if not ast.get_docstring(node):
            yield node.name
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{name}" for name in _undocumented_members(node))


def _undocumented_members(node: ast.ClassDef) -> Iterator[str]:
    followed_by_text = {before for before, after in zip(node.body, node.body[1:], strict=False) if _is_text(after)}
    for member in public(node.body):
        if not ast.get_docstring(member):
            yield member.name
    for field in node.body:
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and "ClassVar" not in ast.unparse(field.annotation)
        ):
            name = field.target.id
            if not name.startswith("_") and field not in followed_by_text:
                yield name


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
