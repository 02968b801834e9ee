"""Writes the study reference from the schema: ``python docs/study_reference.py > docs/study.md``."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from orchestrator.config.study import StudySpec
from search_spaces import Categorical, Float, Integer
from trainables.evaluation import YARDSTICKS
from trainables.objectives import OBJECTIVES

INTRODUCTION = """\
# A study, key by key

<!-- Written by `python docs/study_reference.py > docs/study.md` from the schema. Edit that, not this. -->

A study is one YAML file. Unknown keys are refused with the nearest known one; `h2h plan STUDY` shows what it will
train and spend. `--set KEY=VALUE` overrides any key from the command line: keys are dotted, positions in lists are
numbers from 0, values are YAML (`--set corpora.sources.0.files=my/*.txt --set budget='{flops: 1e14}'`).
YAML is as of version 1.2: `yes`, `no` and `on` are text, `010` is ten, and `true` is no number; merge keys (`<<`) are
refused.
"""

PRECEDENCE = """\
## Which setting counts

A trial's training settings are, from the weakest to the strongest:

1. the defaults,
2. `training` of the study,
3. `arms.ARM.training` of its arm,
4. what the arm's search space varies, in the search and in the confirmation of what it found.

An objective's options likewise: its defaults, `arms.ARM.options`, the search space.
"""

UNITS = """\
## Units of the budget

Exactly one unit binds; all that the machine tells are measured in every trial ([budgets.md](budgets.md)). Only training
steps spend: start-up, compiling, evaluation, checkpoints and work lost to a failure are measured apart. The
learning-rate schedule, the search's rungs and the evaluations are functions of the share that is spent, and the last
step never overshoots.

`flops` are those of matrix products, forward and backward (three times forward), 2 a multiply-add. A sequence of L
tokens through a body of layers with hidden size D and feed-forward size F costs `3 * layers * (2 L (4 D^2 + 2 D F) +
4 L^2 D)`; the loss of K target positions against C candidates `6 K C D`, and BERT's head transform `6 K D^2`. C is
the vocabulary, or for a headless objective the unique targets of the step (with
`gathered: false`, of the micro-batch).
"""

YARDSTICKS_INTRODUCTION = """\
## The yardsticks

The primary one is by default `bits_per_byte`. On small decoders it tells models apart 3.6 times (2.7 to 4.8) as well as
recovery accuracy, over seeds and text; on encoders that have just left the unigram's level all yardsticks are alike
(`python benchmarks/yardsticks.py`).

Taken on held-out text: `validation` while searching, `test` when confirming. Each language counts the same: the overall
value is the mean over languages, of perplexity the geometric mean. `confirm.margin` is in the primary yardstick's own
unit: 0.005 suits a share, not a perplexity. Of a decoder every token of a sequence but the first counts, of an encoder
those that are masked. An encoder's likelihood is that of its masked tokens given all others, a pseudo-likelihood, and
no decoder's equal. A separator or unknown token costs bits and has no bytes. Perplexities and bits per byte above 1e29,
and those of a model that gives NaN, are written down as 1e29.

Every model is scored as its objective implies, and so has a distribution over the vocabulary:

| scorer | scores | implied by |
|---|---|---|
| `head` | the head's | `mlm`, `clm`, their sums with `cwt`, `sampled_softmax`, restored heads |
| `embedding+unigram` | the table of candidates', plus the log-frequency of each token | `headless_*`, `nce_untied*` |
| `embedding` | the table's alone | the same with `log_q: true` |

Candidates of a contrastive loss come by frequency, so the table's scores alone leave it out
([training.md](training.md#how-a-model-is-scored)). The other scorer of a contrastive model stands beside, in the
ledger's last report of each trial (`other_scorers`). Of confirmation runs the scores are also kept by document of the
held-out text, by group where documents have one, or by minimal pair, in `items/TRIAL.parquet` in the study's folder: a
language's score is the sum of its values over that of its weights, of perplexity the exp of that.
"""

SPACES = """\
## A search space file

An arm's `space` names a shipped space (`h2h list`) or a YAML file of one's own, such as `my-space.yaml`:

```yaml
dimensions:
  learning_rate: {type: float, low: 1.0e-4, high: 1.0e-2, log: true}
  temperature: {type: float, low: 0.1, high: 4.0, log: true}
  negatives: {type: choice, choices: [64, 256, null]}
first:
  - {learning_rate: 1.0e-3, temperature: 1.0, negatives: null}
```

Its keys are those of [arms.ARM.space](#armsarmspace). A dimension is a key of [training](#training) or an option of
the arm's objective.
"""

_TYPES = {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): "null", Any: "anything"}


def reference() -> str:
    """The whole page, in Markdown."""
    parts = [INTRODUCTION, *_sections("", StudySpec), *_objectives(), PRECEDENCE, UNITS]
    parts += [YARDSTICKS_INTRODUCTION, _yardsticks(), SPACES]
    for kind in (Float, Integer, Categorical):
        parts += [f"### A dimension of type {get_args(kind.model_fields['type'].annotation)[0]}\n", _table(kind, "")]
    return "\n".join(parts)


def _sections(path: str, model: type[BaseModel]) -> Iterator[str]:
    """A record's section, then those of the records in it."""
    yield f"## {path or 'The study'}\n"
    yield f"{_one_line(model.__doc__)}\n"
    yield _table(model, path)
    for name, field in model.model_fields.items():
        inner = _record(field.annotation)
        # An arm's model is of the same kind as the study's, which has its section.
        if inner is not None and not (path and name in StudySpec.model_fields):
            yield from _sections(_inner_path(path, name, field.annotation), inner)


def _objectives() -> Iterator[str]:
    yield "## Options of the objectives\n"
    yield "Set in `arms.ARM.options`, or varied by the arm's search space.\n"
    for objective in OBJECTIVES:
        yield f"### {objective.name}\n"
        yield _table(objective.Options, "") if objective.Options.model_fields else "None.\n"


def _yardsticks() -> str:
    rows = ["| yardstick | better | what it is |", "|---|---|---|"]
    for yardstick in YARDSTICKS:
        better = "higher" if yardstick.higher_is_better else "lower"
        rows.append(f"| `{yardstick.name}` | {better} | {yardstick.description} |")
    return "\n".join(rows) + "\n"


def _table(model: type[BaseModel], path: str) -> str:
    rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for name, field in model.model_fields.items():
        inner = _record(field.annotation)
        value = _type(field.annotation) + _constraints(field)
        if inner is not None:
            known = name if path and name in StudySpec.model_fields else _inner_path(path, name, field.annotation)
            value = value.replace(inner.__name__, f"[{known}](#{_anchor(known)})")
        rows.append(f"| `{name}` | {value} | {_default(field)} | {_one_line(field.description)} |")
    return "\n".join(rows) + "\n"


def _inner_path(path: str, name: str, annotation: Any) -> str:
    inside = {dict: ".NAME", tuple: ".0"}.get(get_origin(annotation), "")
    inside = ".ARM" if name == "arms" else inside
    return f"{path}.{name}{inside}" if path else f"{name}{inside}"


def _anchor(heading: str) -> str:
    """As GitHub makes it."""
    return heading.lower().replace(".", "")


def _record(annotation: Any) -> type[BaseModel] | None:
    """The one record in an annotation; None where there is none, or a choice of several."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = {record for argument in get_args(annotation) if (record := _record(argument)) is not None}
    return found.pop() if len(found) == 1 else None


def _type(annotation: Any) -> str:
    """A type as a person says it: ``number or null``, ``list of text``."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(f"`{argument}`" for argument in arguments)
    if origin in (Union, types.UnionType):
        words = dict.fromkeys(map(_type, arguments))
        return " or ".join(word for word in words if word != "whole number" or "number" not in words)
    if origin is tuple:
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return f"{_type(arguments[1])}, by name"
    if annotation in _TYPES:
        return _TYPES[annotation]
    if origin is Annotated:
        limited, field = arguments
        return _TYPES[limited] + _constraints(field) if limited in _TYPES else "dimension, see below"
    return str(annotation.__name__)


def _constraints(field: FieldInfo) -> str:
    words = {
        "ge": "at least {}",
        "gt": "above {}",
        "le": "at most {}",
        "lt": "below {}",
        "max_length": "up to {} long",
        "min_length": "not empty",
        "pattern": "matching `{}`",
    }
    found = [
        text.format(value)
        for item in field.metadata
        for name, text in words.items()
        if (value := getattr(item, name, None)) is not None
    ]
    return "".join(f", {text}" for text in found).replace("|", "\\|")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    default = field.get_default(call_default_factory=True)
    if isinstance(default, BaseModel):
        given = default.model_dump(exclude_defaults=True)
        return f"`{given}`" if given else "its defaults"
    if default is None:
        return "null"
    if isinstance(default, tuple | dict | list):
        return f"`[{', '.join(map(str, default))}]`" if default else "none"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`" if default != "" else "empty"


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    print(reference(), end="")
