"""The source of some measures as one file, to be put beside a published `evaluate` module.

`evaluate` fetches a module's own file and the siblings that it imports, but not what those import, and a Space cannot
install a package that is not on PyPI.
"""

from __future__ import annotations

import ast
from importlib.resources import files


def single_file(*modules: str) -> str:
    """Joins modules of this package, and what they import of each other, into one that needs NumPy at most.

    Args:
        modules: names such as `"negbench"` or `"judge"`.

    Returns:
        Python source.

    Raises:
        ValueError: an unknown module, or two that define the same name.

    Example:
        >>> namespace = {}
        >>> exec(single_file("negbench"), namespace)
        >>> namespace["negbench_mcq"]([[0.9, 0.1]], [0])["strict_accuracy"]
        1.0
    """
    parts: dict[str, str] = {}
    imports: dict[str, None] = {}  # an ordered set
    owners: dict[str, str] = {}
    for module in modules:
        _collect(module, parts, imports, owners)
    header = f'"""Generated from negation_clip.metrics ({", ".join(parts)}). Apache-2.0."""'
    future = "from __future__ import annotations"
    return "\n".join([header, "", future, "", *imports, *(f"\n\n{part}" for part in parts.values())]) + "\n"


def _collect(module: str, parts: dict[str, str], imports: dict[str, None], owners: dict[str, str]) -> None:
    if module in parts:
        return
    path = files(__package__) / f"{module}.py"
    if not path.is_file():
        raise ValueError(f"modules: {module!r} is none of negation_clip.metrics.")
    source = path.read_text(encoding="utf-8")
    kept = source.splitlines()
    for node in ast.parse(source).body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.ImportFrom) and node.level:
            _collect(node.module, parts, imports, owners)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            if getattr(node, "module", None) != "__future__":
                imports[ast.unparse(node)] = None
        elif not is_docstring:
            for name in _defined(node):
                if owners.setdefault(name, module) != module:
                    raise ValueError(f"modules: {module!r} and {owners[name]!r} both define {name!r}.")
            continue
        kept[node.lineno - 1 : node.end_lineno] = [None] * (node.end_lineno - node.lineno + 1)
    parts[module] = "\n".join(line for line in kept if line is not None).strip("\n")


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    return [name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)]
