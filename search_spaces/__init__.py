"""Search spaces: what may vary, one YAML per objective, and their loader. Imports nothing else of this project."""

from search_spaces.space import Categorical, Dimension, Float, Integer, Space, load_space, space_names

__all__ = ["Categorical", "Dimension", "Float", "Integer", "Space", "load_space", "space_names"]
