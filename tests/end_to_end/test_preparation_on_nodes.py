"""A preparation on a cluster of several machines, from and to an object store: its driver is killed, machines are lost,
and the corpus is the same to the bit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from tests.helpers.nodes import Nodes, wait_until
from tests.helpers.object_store import BUCKET, environment, s3_server
from tests.helpers.preparation import TOKENIZER, in_this_process, ray_of_this_process, write_language
from trainables.corpora.config import CorporaConfig
from trainables.corpora.preparation import duplicates, tokenizer_sample
from trainables.corpora.preparation import prepare as preparation
from trainables.corpora.preparation.prepare import prepare
from trainables.corpora.reading import portions
from trainables.corpora.tokenizers import load_tokenizer
from trainables.storage import Location

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]

FILES = 36
"""Each is a part of its own."""


def prepare_on(address: str, folder: str, store: str) -> None:
    """What the driver of a cluster does; prints what was packed, by whom."""
    import ray

    ray.init(address, logging_level="ERROR", log_to_driver=False)
    portions.PART_BYTES = 1
    preparation.COMPARED_HERE_BYTES = preparation.COUNTED_HERE_TOKENS = 0
    corpora = CorporaConfig.model_validate_json((Path(folder) / "corpora.json").read_text())
    told = []
    manifest = prepare(corpora, load_tokenizer(f"{folder}/tokenizer"), Location(store), progress=told.append)
    print(json.dumps([manifest.fingerprint, told[-1].packing._asdict()]))


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URI of a bucket that holds many files of text; settings and a tokenizer in ``tmp_path``."""
    write_language(tmp_path / "text", "en", 9000, num_files=FILES)
    pytest.importorskip("moto")
    bucket = f"s3://{BUCKET}"
    with s3_server() as port, environment(port):
        for file in (tmp_path / "text").iterdir():
            (Location(bucket) / f"text/{file.name}").write_bytes(file.read_bytes())
        source = {"language": "en", "files": f"{bucket}/text/en-*.jsonl.gz", "id_column": "id"}
        shares = {"validation_share": 0.1, "test_share": 0.1, "sequence_length": 16, "deduplicate": True}
        corpora = CorporaConfig.model_validate({"sources": [source], **shares})
        (tmp_path / "corpora.json").write_text(corpora.model_dump_json())
        tokenizer_sample.make_tokenizer(corpora, TOKENIZER).save_pretrained(tmp_path / "tokenizer")
        yield bucket


def files_of(folder: Location) -> dict[str, bytes]:
    selector = pafs.FileSelector(folder.path, recursive=True, allow_not_found=True)
    found = [info.path for info in folder.filesystem.get_file_info(selector) if info.type == pafs.FileType.File]
    names = [path.removeprefix(folder.path).lstrip("/") for path in found]
    return {name: (folder / name).read_bytes() for name in sorted(names)}


def start(nodes: Nodes, folder: Path, store: str) -> subprocess.Popen[str]:
    call = f"prepare_on({nodes.address!r}, {str(folder)!r}, {store!r})"
    command = [sys.executable, "-c", f"from {__name__} import *; {call}"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=nodes.environment)


def test_machines_and_a_driver_are_lost(text, tmp_path, monkeypatch) -> None:
    store = f"{text}/corpora"
    with Nodes(tmp_path) as nodes:
        for _ in range(3):
            nodes.add()

        def packed() -> int:
            found = Location(store)
            return sum(len((found / f"{name}/parts").names()) for name in found.names())

        driver = start(nodes, tmp_path, store)
        wait_until(lambda: packed() >= 3 or driver.poll() is not None, 600)
        driver.kill()
        driver.wait()
        before = packed()
        assert 3 <= before < FILES
        driver = start(nodes, tmp_path, store)
        wait_until(lambda: packed() >= before + 4 or driver.poll() is not None, 600)
        nodes.lose(nodes.nodes[0])
        assert packed() < FILES, "it was lost half way"
        output, _ = driver.communicate(timeout=1200)
        assert driver.returncode == 0
    name, packing = json.loads(output.splitlines()[-1])
    assert packing["parts"] == FILES
    assert packing["made_parts"] <= FILES - before
    assert packing["machines"] >= 2
    monkeypatch.setitem(sys.modules, "ray", ray_of_this_process())
    monkeypatch.setattr(portions, "PART_BYTES", 1)
    for module in (preparation, duplicates):
        monkeypatch.setattr(module, "run_job", in_this_process)
    corpora = CorporaConfig.model_validate_json((tmp_path / "corpora.json").read_text())
    undisturbed = Location(f"{text}/undisturbed")
    assert prepare(corpora, load_tokenizer(str(tmp_path / "tokenizer")), undisturbed).fingerprint == name
    assert files_of(Location(store) / name) == files_of(undisturbed / name)
