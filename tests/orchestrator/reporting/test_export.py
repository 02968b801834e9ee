"""``h2h export``: which trial of a study is exported, its card, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
import yaml

from orchestrator.cli import main
from orchestrator.config.files import dump_study, make_study, open_frozen
from orchestrator.ledger.protocol import design_of
from orchestrator.ledger.records import CorpusLanguage, CorpusRecord
from tests.helpers.corpus import LENGTH, VOCABULARY, write_corpus
from tests.helpers.exports import SIZE, WIDE, held_out, make_learner, make_tokenizer
from tests.helpers.ledgers import end, measure, spent, trial, write_ledger
from tests.helpers.ledgers import study as study_record
from tests.helpers.trials import make_state
from trainables.corpora.stream.packed import PackedCorpus
from trainables.corpora.stream.token_stream import TokenStream
from trainables.evaluation import Score
from trainables.storage import Location
from trainables.training.checkpoint import Checkpoints
from trainables.training.checkpoint_tensors import module_tensors

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> PackedCorpus:
    folder = tmp_path_factory.mktemp("store") / "corpora" / "small"
    corpus = write_corpus(folder, {"en": 40, "veldan": 40})
    make_tokenizer().save_pretrained(folder / "tokenizer")
    return corpus


def write_study(storage: Path, corpus: PackedCorpus, arms=("headless", "vanilla"), confirmed=2) -> Path:
    """A study's folder as a run leaves it, made by hand: frozen study, ledger and checkpoints."""
    objectives = {"headless": "headless_mlm", "vanilla": "mlm"}
    content = {
        "name": "by-hand",
        "question": "Which one?",
        "corpora": {
            "sources": [{"language": "en", "files": "en.txt"}, {"language": "veldan", "files": "veldan.txt"}],
            "sequence_length": LENGTH,
        },
        "model": {"config": {"model_type": "bert", **SIZE | WIDE}},
        "arms": {arm: {"objective": objectives[arm]} for arm in arms},
        "budget": {"tokens": 1600},
        "confirm": {"seeds": 2},
        "yardsticks": {"primary": "recovery_accuracy", "others": []},
        "storage": str(storage),
    }
    folder = storage / "by-hand"
    folder.mkdir(parents=True)
    spec = make_study(content)
    (folder / "study.yaml").write_text(dump_study(spec))
    if not (storage / "corpora").exists():
        (storage / "corpora").symlink_to(Path(corpus.folder.uri).parent)
    counts = CorpusLanguage(documents=40, tokens=640, sequences=40, target_share=0.5)
    records = [
        study_record(name="by-hand", digest="abcd", versions={"torch": "2"}, of=design_of(spec)),
        CorpusRecord(
            fingerprint="small",
            vocabulary_size=VOCABULARY,
            sequence_length=LENGTH,
            languages=dict.fromkeys(corpus.languages, counts),
        ),
    ]
    for arm in arms:
        for phase, number, seed, outcome in (
            ("search", 0, 0, "completed"),
            ("search", 1, 0, "pruned"),
            *(("confirm", index, index + 1, "completed") for index in range(confirmed)),
        ):
            configuration = {"learning_rate": 1e-3} | ({"temperature": 0.5} if arm == "headless" else {})
            score = 0.25 + 0.1 * seed + (0.05 if arm == "headless" else 0)
            own = trial(phase, arm, number, seed=seed, configuration=configuration, amount=1600)
            amounts = spent(tokens=1600, steps=7, flops=10**9, hardware_flops=10**9, device_seconds=3.0)
            languages = Score(overall=score, languages={"en": score, "veldan": score})
            report = measure(
                own,
                7,
                1.0,
                spent=amounts,
                loss=4.2,
                digest=f"{seed:016x}",
                mix={"en": 50, "veldan": 50},
                scores={"recovery_accuracy": languages},
            )
            records += [own, report, end(own, outcome)]
            if outcome == "completed":
                write_checkpoint(folder / "trials" / own.trial, 7, learner_of(arm, seed))
    write_ledger(folder, records)
    return folder


def learner_of(arm, seed):
    objective, options = ("headless_mlm", {"temperature": 0.5}) if arm == "headless" else ("mlm", {})
    return make_learner("bert", objective, options, {}, seed=seed)


def write_checkpoint(trial, step, learner, *, finished=True):
    checkpoints = Checkpoints(Location(trial))
    more = {} if finished else {"optimiser": {}}
    checkpoints.save(step, {"model": module_tensors(learner)} | more, make_state())
    checkpoints.wait()
    checkpoints.close()


@pytest.fixture
def study(tmp_path, corpus) -> Path:
    return write_study(tmp_path / "studies", corpus)


def logits_of(folder, corpus):
    from transformers import AutoModelForMaskedLM

    ids = torch.from_numpy(held_out(corpus)[1])
    with torch.no_grad():
        return ids, AutoModelForMaskedLM.from_pretrained(folder).eval()(ids).logits


@pytest.mark.parametrize("arm", ["headless", "vanilla"])
def test_export_writes_the_first_paired_run_of_an_arm(study, tmp_path, corpus, capsys, arm):
    to = tmp_path / "model"
    assert main(["export", str(study), "--arm", arm, "--to", str(to)]) == 0
    assert str(to) in capsys.readouterr().out
    ids, logits = logits_of(to, corpus)
    learner = learner_of(arm, seed=1)
    text = open_frozen(Location(study)).corpora
    stream = TokenStream(corpus, 0, text.alpha, text.maximum_repetition)
    learner.log_unigram_V = torch.from_numpy(stream.log_unigram(corpus.manifest.special_tokens)).float()
    with torch.no_grad():
        expected = learner.logits(learner.hidden(ids).flatten(0, 1)).view(logits.shape)
    assert float((logits - expected).abs().max() / expected.std()) < 1e-5


def test_the_card_holds_the_evidence_and_no_licence(study, tmp_path):
    to = tmp_path / "model"
    assert main(["export", str(study), "--arm", "headless", "--to", str(to)]) == 0
    card = (to / "README.md").read_text()
    front = yaml.safe_load(card.split("---")[1])
    assert front["language"] == ["en"], "the hub refuses what is no language code"
    assert front["pipeline_tag"] == "fill-mask"
    assert front["library_name"] == "transformers"
    assert "license" not in front
    for fragment in (
        "Which one?",
        "the first of 2 completed confirmation runs",
        "| headless | learning_rate=0.001 temperature=0.5 | 2 of 2 | 0.450 ± 0.071 | 6.4k tokens |",
        "| vanilla | learning_rate=0.001 | 2 of 2 | 0.400 ± 0.071 | 6.4k tokens |",
        "| headless – vanilla | recovery_accuracy | 2 | +0.050 [0.050, 0.050] | – |",
        "| recovery_accuracy | 0.400 | 0.400 | 0.400 |",  # of seed 1 itself
        "| budget of the trial | 1.6k tokens |",
        "7 steps, 1.0 GFLOP, 3 s of device time",
        "temperature=0.5",
        f"`{1:016x}`",
        "| veldan | 40 | 640 | 50.0% | 800 |",
        'AutoModelForMaskedLM.from_pretrained("model")',
        "cannot be compared",
        "plus the log-probability of each token in the training text",
        "vanilla on recovery_accuracy at 1.6k tokens a trial is undecided",
    ):
        assert fragment in card, fragment
    assert "4.2" not in card, "no loss"
    assert str(tmp_path) not in card


def test_a_trial_may_be_named(study, tmp_path, corpus):
    to = tmp_path / "model"
    assert main(["export", str(study), "--trial", "confirm-vanilla-001", "--to", str(to)]) == 0
    ids, logits = logits_of(to, corpus)
    learner = learner_of("vanilla", seed=2)
    with torch.no_grad():
        expected = learner.logits(learner.hidden(ids).flatten(0, 1)).view(logits.shape)
    assert torch.allclose(logits, expected, atol=1e-5 * float(expected.std()))
    assert "asked for by name" in (to / "README.md").read_text()
    assert main(["export", str(study), "--trial", "search-vanilla-000", "--to", str(to), "--force"]) == 0
    assert "validation split" in (to / "README.md").read_text()


def test_a_head_that_was_restored_is_exported(study, tmp_path, corpus):
    learner = learner_of("headless", seed=1)
    learner.restore_head()
    with torch.no_grad():
        learner.head.bias.normal_()
    write_checkpoint(study / "trials" / "confirm-headless-000", 9, learner)
    assert main(["export", str(study), "--arm", "headless", "--to", str(tmp_path / "model")]) == 0
    ids, logits = logits_of(tmp_path / "model", corpus)
    with torch.no_grad():
        expected = learner.logits(learner.hidden(ids).flatten(0, 1)).view(logits.shape)
    assert torch.allclose(logits, expected, atol=1e-5 * float(expected.std()))
    assert "without a vocabulary head" not in (tmp_path / "model" / "README.md").read_text()


def test_a_study_that_was_moved_finds_its_corpus(tmp_path, corpus):
    folder = write_study(tmp_path / "studies", corpus, arms=("vanilla",), confirmed=1)
    (tmp_path / "studies").rename(tmp_path / "moved")
    moved = tmp_path / "moved" / folder.name
    assert main(["export", str(moved), "--to", str(tmp_path / "model")]) == 0, "and its only arm needs no name"


def test_mistakes_are_refused_in_one_message(study, tmp_path, capsys):
    def refused(*arguments, fragments):
        assert main(["export", *map(str, arguments)]) == 2
        message = capsys.readouterr().err
        assert len(message.splitlines()) <= 4
        for fragment in fragments:
            assert fragment in message

    to = tmp_path / "model"
    refused(study, "--to", to, fragments=["2 arms", "--arm headless or --arm vanilla"])
    refused(study, "--to", to, "--arm", "vanila", fragments=["no arm is called 'vanila'", "did you mean 'vanilla'"])
    refused(study, "--to", to, "--trial", "confirm-vanilla-01", fragments=["did you mean 'confirm-vanilla-001'"])
    refused(study, "--to", to, "--trial", "search-vanilla-001", fragments=["search-vanilla-001: pruned"])
    refused(study, "--to", to, "--arm", "vanilla", "--trial", "confirm-headless-000", fragments=["of the arm headless"])
    full = tmp_path / "full"
    full.mkdir()
    (full / "notes.txt").write_text("mine")
    refused(study, "--to", full, "--arm", "vanilla", fragments=["is not empty", "--force"])
    refused(study, "--to", full / "notes.txt", "--arm", "vanilla", fragments=["cannot write to"])
    refused(tmp_path / "nothing", "--to", to, fragments=["no study"])

    trial = study / "trials" / "confirm-vanilla-000"
    write_checkpoint(trial, 8, learner_of("headless", 1))
    refused(study, "--to", to, "--arm", "vanilla", fragments=["cannot be loaded", "parameters differ: head."])
    shutil.rmtree(trial)
    write_checkpoint(trial, 7, learner_of("vanilla", 1))
    (trial / "start-0001" / "step-00000007" / "model.safetensors").write_bytes(b"torn")
    refused(study, "--to", to, "--arm", "vanilla", fragments=["cannot be loaded", str(trial), "--trial NAME"])
    shutil.rmtree(trial)
    write_checkpoint(trial, 6, learner_of("vanilla", 1), finished=False)  # the one after it was lost
    refused(
        study, "--to", to, "--arm", "vanilla", fragments=["cannot be loaded", "not the model that the run reported"]
    )
    shutil.rmtree(trial)
    refused(study, "--to", to, "--arm", "vanilla", fragments=["has no checkpoint", "--trial NAME"])
    assert not to.exists()


def test_an_arm_without_a_confirmed_run(tmp_path, corpus, capsys):
    folder = write_study(tmp_path / "studies", corpus, confirmed=0)
    assert main(["export", str(folder), "--to", str(tmp_path / "model"), "--arm", "vanilla"]) == 2
    assert f"h2h resume {folder}" in capsys.readouterr().err


def test_pushing_to_the_hub(study, tmp_path, monkeypatch, capsys):
    import huggingface_hub

    calls = []

    class Hub:
        def create_repo(self, repo_id, **options):
            calls.append(("create", repo_id, options))
            return huggingface_hub.RepoUrl(f"https://huggingface.co/me/{repo_id}")

        def upload_folder(self, **options):
            calls.append(("upload", options))

    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
    to = tmp_path / "model"
    arguments = ["export", str(study), "--arm", "vanilla", "--to", str(to), "--push-to-hub", "tiny"]
    assert main(arguments) == 0
    (_, repository, created), (_, uploaded) = calls
    assert repository == "tiny"
    assert created == {"private": True, "exist_ok": True}
    assert uploaded["repo_id"] == "me/tiny"
    assert set(uploaded["allow_patterns"]) == {path.name for path in to.iterdir()}
    assert 'from_pretrained("tiny")' in (to / "README.md").read_text()
    assert "https://huggingface.co/me/tiny" in capsys.readouterr().out


@pytest.mark.parametrize(("repository", "endpoint"), [("me/tiny", "http://127.0.0.1:9"), ("a/b/c", None)])
def test_a_push_that_fails_says_what_to_do(study, tmp_path, monkeypatch, capsys, repository, endpoint):
    import huggingface_hub

    real = huggingface_hub.HfApi
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: real(endpoint=endpoint, token=False))
    arguments = ["export", str(study), "--arm", "vanilla", "--to", str(tmp_path / "model")]
    assert main([*arguments, "--push-to-hub", repository]) == 2
    message = capsys.readouterr().err
    assert f"could not be pushed to {repository}" in message
    assert "hf auth login" in message
    assert (tmp_path / "model" / "config.json").exists()
