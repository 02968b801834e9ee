"""Search spaces: what may vary, one YAML per objective, and their types. Imports nothing else of this project."""

from search_spaces.space import (
    Categorical,
    Configuration,
    Dimension,
    Float,
    Integer,
    Setting,
    Space,
    space_names,
    space_path,
)

__all__ = [
    "Categorical",
    "Configuration",
    "Dimension",
    "Float",
    "Integer",
    "Setting",
    "Space",
    "space_names",
    "space_path",
]
