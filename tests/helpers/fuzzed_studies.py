"""Studies changed at random, and what planning them must not do."""

from __future__ import annotations

import copy
import json
import math
import os
import random
from pathlib import Path
from typing import Any

import yaml

from orchestrator.config.files import SHIPPED, dump_study, freeze, load_study, make_study
from tests.helpers.commands import run_command
from tests.helpers.mutations import mutated
from trainables.errors import InputError

TEXT = "\n\n".join(f"A sentence, number {number}, of some length." for number in range(1000))

VALUES: list[Any] = [
    *[None, True, False, 0, 1, 2, -1, 3.5, 0.0, -0.0, 1e-300, 1e300, 10**20, -(10**20), 2**31, 2**63, 10**400],
    *[math.inf, -math.inf, math.nan, "", " ", "x", "ä\u0301", "日本", "\U0001f600", "\0", "a\nb", "\x1b[2J", "\u202e"],
    *["../..", "/", "~", "~nobody", ".", "s3://", "s3://b/c", "gs://x", "hf://a/b", "http://x", "file:///etc/passwd"],
    *["null", "true", "1e5", "0x10", "1_000", "2026-11-22", "x" * 300, "x" * 70_000, "{}", "[]", "*.txt", "**"],
    *[
        "clm",
        "mlm",
        "headless_mlm",
        "headless_clm",
        "wsd",
        "cosine",
        "auto",
        "demo",
        "bert",
        "gpt2",
        "fsdp",
        "byte_bpe",
    ],
    *[[], [[]], [None], [0], ["x"], [{}], {}, {"": 1}, {"x": {}}, {"train": {}}, {"tokens": 1}, {"flops": 1e14}],
    *[{"shape": "tiny"}, {"config": {"model_type": "bert"}}, {"config": {"model_type": 7}}, {"pretrained": "x/y"}],
    *[
        {"type": "float", "low": 1, "high": 0},
        {"type": "int", "low": 1, "high": 10**9},
        {"type": "choice", "choices": []},
    ],
]


def base(folder: Path, generator: random.Random) -> dict[str, Any]:
    """A shipped study, its text from the folder where it has none of its own."""
    name = generator.choice(["demo", "demo", "laptop", "paper-pythia-70m", "paper-bert-base"])
    content: dict[str, Any] = yaml.safe_load((SHIPPED / f"{name}.yaml").read_text())
    if name != "demo":
        content["corpora"]["sources"] = [{"language": "en", "files": str(folder / "text.txt")}]
    masked = any(arm["objective"].endswith("mlm") for arm in content["arms"].values())
    if generator.random() < 0.3:
        content["arms"]["third"] = {
            "objective": "nce_untied" if masked else "headless_clm",
            "options": {"gathered": True},
            "training": {"restoration": {"share": 0.1}},
            "space": {"dimensions": {"learning_rate": {"type": "float", "low": 1e-4, "high": 1e-2, "log": True}}},
            "model": {
                "config": {
                    "model_type": "bert" if masked else "gpt_neox",
                    "num_hidden_layers": 2,
                    "hidden_size": 64,
                    "num_attention_heads": 2,
                    "intermediate_size": 128,
                }
            },
        }
    if generator.random() < 0.3:
        content["cap"] = {"tokens": 10**13}
        content["confirm"] = {"seeds": 6, "stopping": {"minimum": 3}, "anytime": [0.5]}
        content.setdefault("training", {}).update({"schedule": "wsd"})
    return content


def places(content: Any) -> list[tuple[Any, Any]]:
    """All containers with each of their keys."""
    found = []
    waiting = [content]
    while waiting:
        item = waiting.pop()
        keys = item.keys() if isinstance(item, dict) else range(len(item)) if isinstance(item, list) else ()
        found += [(item, key) for key in keys]
        waiting += [item[key] for key in keys]
    return found


def near(value: Any, generator: random.Random) -> Any:
    """Another value that might be meant."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return generator.choice([value + 1, value - 1, value * 2, value / 2, value * 100, -value, 0, 1])
    if isinstance(value, str):
        return generator.choice([value.upper(), value[:-1], f"{value}x", value.replace("headless_", ""), [value]])
    return copy.deepcopy(generator.choice([value, [value]]))


def changed(content: dict[str, Any], generator: random.Random) -> dict[str, Any]:
    """With one to three changes anywhere: a value, a key, what is left out, what is doubled, two that change places."""
    content = copy.deepcopy(content)
    for _ in range(generator.choice([1, 1, 1, 2, 3])):
        known = places(content)
        if not known:
            return content
        owner, key = generator.choice(known)
        kind = generator.random()
        value = near(owner[key], generator) if generator.random() < 0.6 else copy.deepcopy(generator.choice(VALUES))
        if kind < 0.5:
            owner[key] = value
        elif kind < 0.6:
            del owner[key]
        elif kind < 0.75 and isinstance(owner, dict):
            name = generator.choice([generator.choice(known)[1], "x", "", "learning_rate", "seed", 5, True, None])
            owner[name] = value if generator.random() < 0.5 else owner[key]
        elif isinstance(owner, list):
            owner.insert(key, generator.choice([value, copy.deepcopy(owner[key])]))
        else:
            other_owner, other_key = generator.choice(known)
            owner[key] = copy.deepcopy(other_owner[other_key])
    return content


def written(content: dict[str, Any], generator: random.Random) -> bytes:
    """As YAML or JSON, now and then with bytes changed too."""
    try:
        text = json.dumps(content) if generator.random() < 0.2 else yaml.safe_dump(content, allow_unicode=True)
    except (TypeError, ValueError, yaml.YAMLError):
        text = yaml.dump(content, Dumper=yaml.Dumper)
    data = text.encode("utf-8", "surrogatepass")
    return mutated(data, generator) if generator.random() < 0.1 else data


def overrides(content: dict[str, Any], generator: random.Random) -> list[str]:
    """Of random keys with random values."""
    given = []
    while generator.random() < 0.15:
        place, key, value = content, [], generator.choice(VALUES)
        while isinstance(place, dict) and place and (not key or generator.random() < 0.7):
            key.append(str(generator.choice(list(place))))
            place = place.get(key[-1])
        text = generator.choice([str(value), json.dumps(value) if not isinstance(value, bytes) else "", "[", "{a: *b}"])
        given.append(
            generator.choice([f"{'.'.join(key)}={text}", ".".join(key), f"={text}", f"{'.'.join(key)}.0={text}"])
        )
    return [word.replace("\0", "") for word in given]


def study(folder: Path, generator: random.Random) -> None:
    """A study's file is read, planned and, where it is whole, frozen and read again.

    Raises:
        InputError: it is wrong.
    """
    (folder / "text.txt").write_text(TEXT)
    content = base(folder, generator)
    file = folder / "study.yaml"
    file.write_bytes(written(changed(content, generator), generator))
    words = [word for one in overrides(content, generator) for word in ("--set", one)]
    words += ["--set", f"storage={folder}"] if generator.random() < 0.5 else []
    code, errors = run_command("plan", str(file), "--no-calibration", *words)
    assert code in (0, 2), f"exit code {code}: {errors}"
    spec = load_study(file, words[1::2])
    frozen = dump_study(freeze(spec))  # also of one that cannot be planned here: a cluster may run it
    assert dump_study(freeze(make_study(yaml.safe_load(frozen)))) == frozen
    if code == 2:
        raise InputError(errors)


def prepare(folder: Path) -> None:
    """Import what planning imports, and ask no hub and no cloud: what they answer is not the study's."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "AWS_EC2_METADATA_DISABLED": "true"}
    os.chdir(folder)
    code, errors = run_command("plan", "demo", "--no-calibration")
    assert code == 0, errors
