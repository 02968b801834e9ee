"""Packages of other people, as an installer would leave them in a folder of the path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write_package(folder: Path, name: str, modules: Mapping[str, str], entry_points: Mapping[str, str]) -> None:
    """Modules, and the metadata that names what they bring.

    Args:
        folder: on the path.
        name: of the package.
        modules: their code, by name.
        entry_points: lines ``NAME = MODULE:ATTRIBUTE`` by group.
    """
    for module, code in modules.items():
        (folder / f"{module}.py").write_text(code)
    metadata = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"[{group}]\n{entries}\n" for group, entries in entry_points.items()]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
