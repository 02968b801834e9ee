"""The JSON Schema of a study file: by it an editor completes keys, and underlines what is wrong."""

from __future__ import annotations

from pydantic import JsonValue

from orchestrator.config.study import StudySpec


def study_schema() -> dict[str, JsonValue]:
    """The schema, of draft 2020-12."""
    schema: dict[str, JsonValue] = StudySpec.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "A headtohead study"}
