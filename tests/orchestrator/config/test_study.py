"""Studies: overrides, round trips, and one clear error for each mistake."""

import pytest
import yaml

from orchestrator.config.errors import place
from orchestrator.config.files import SHIPPED, dump_study, load_study, make_study, study_names
from orchestrator.planning.arm_plan import checked_plans
from orchestrator.planning.preflight import check_places
from trainables.corpora.preparation.tokenizer_sample import make_tokenizer
from trainables.errors import InputError

MISTAKES = {
    # override: (what, where, remedy)
    "serch=1": ("unknown key 'serch'", "serch", "did you mean 'search'"),
    "confirm.seed=3": ("unknown key 'seed'", "confirm.seed", "did you mean 'seeds'"),
    "arms.vanilla.objectve=mlm": ("unknown key", "arms.vanilla.objectve", "did you mean 'objective'"),
    "corpora.sources.0.langage=x": ("unknown key", "corpora.sources.0.langage", "did you mean 'language'"),
    "arms.vanilla.objective=clmm": ("unknown objective", "arms.vanilla.objective", "did you mean 'clm'"),
    "arms.vanilla.space=clmm": ("no search space", "arms.vanilla.space", "did you mean 'clm'"),
    "model.shape=tinny": ("unknown shape 'tinny'", "model", "did you mean 'tiny'"),
    "yardsticks.primary=recovery_acuracy": ("yardstick", "yardsticks.primary", "did you mean 'recovery_accuracy'"),
    "budget.flops=1e12": ("tokens and flops are both set", "budget", ""),
    "budget={}": ("no budget", "budget", ""),
    "budget=5": ("keys and values", "budget", ""),
    "confirm.seeds=-1": ("must be at least 1", "confirm.seeds", "Default: 14"),
    "confirm.seeds=six": ("must be a whole number", "confirm.seeds", "Default: 14"),
    "confirm={seeds: 201, stopping: {minimum: 6}}": ("at most 200 seeds", "confirm.seeds", "confirm.seeds=200"),
    "confirm.control=vanila": ("names no arm: 'vanila'", "confirm.control", "did you mean 'vanilla'"),
    "corpora.alpha=2": ("must be at most 1", "corpora.alpha", "Languages are mixed"),
    "budget.tokens=-5": ("must be above 0", "budget.tokens", "Input tokens"),
    "budget.tokens=.inf": ("finite", "budget.tokens", ""),
    "budget.tokens=20k": ("must be a number", "budget.tokens", "did you mean 20000? tokens: Input tokens"),
    "budget.tokens=1.5M": ("must be a number", "budget.tokens", "did you mean 1500000?"),
    "budget.tokens=1,000,000": ("must be a number", "budget.tokens", "did you mean 1000000?"),
    "budget.tokens='2e15'": ("must be a number", "budget.tokens", "write it without quotes"),
    "confirm.margin=5%": ("must be a number", "confirm.margin", "did you mean 0.05?"),
    "confirm.seeds=2k": ("must be a whole number", "confirm.seeds", "did you mean 2000?"),
    "search.algorithm=tppe": ("must be 'tpe', 'gp'", "search.algorithm", "did you mean 'tpe'? algorithm: Optuna's"),
    "tokenizer.train.type=bytebpe": ("must be 'unigram'", "tokenizer.train.type", "did you mean 'byte_bpe'?"),
    "report_to=[tensorbord]": ("'report_to.0' must be", "report_to.0", "did you mean 'tensorboard'?"),
    "budget.tokens=10": ("buys no training step", "budget.tokens", "at least 64"),
    "resources.workers=3": ("shared out evenly among 3", "training.batch_sequences", "multiple of 3"),
    "corpora.minimal_pairs_per_language=0": ("no minimal pairs", "yardsticks", "leave out"),
    "arms.vanilla.training={learning_rate: -1}": ("above 0", "arms.vanilla.training.learning_rate", "Peak"),
    "arms.headless.options={temprature: 1}": (
        "unknown key 'temprature'",
        "arms.headless.options.temprature",
        "did you mean 'temperature'",
    ),
    "arms.vanilla.options.temperature=1": (
        "the objective clm has no option 'temperature'",
        "--set arms.vanilla.options.temperature=1",
        "an objective that has it: headless_mlm, headless_clm, mlm+cwt",
    ),
    "arms.headless.options={temperature: 0}": ("above 0", "arms.headless.options.temperature", "Default: 1"),
    "search.halving.rungs=40": ("must be at most 16", "search.halving.rungs", "Default: 3"),
    "search.halving.rungs=12": ("first rung", "search.halving.rungs", "fewer rungs"),
    "arms={}": ("must not be empty", "arms", ""),
    "arms={a b: {objective: clm}}": ("'a b' must be of the letters A to Z", "arms.a b", ""),
    "corpora.sources=[{language: en}]": ("set exactly one of files", "corpora.sources", ""),
    "name=a/b": ("must be of the letters A to Z and a to z, digits and . _ -,", "name", ""),
    "name=größe": ("and begin with a letter or digit", "name", ""),
    "confirm.seeds.x=3": ("whole number", "confirm.seeds", ""),
    "corpora.sources.9.language=x": ("no position", "--set", "positions are 0 to 3"),
    "corpora.sources.a=1": ("no position", "--set", "positions are 0 to 3"),
    "corpora.sources.00=x": ("no position", "--set", "positions are 0 to 3"),
    "corpora.sources=[{language: 010, files: x}]": ("must be text", "corpora.sources.0.language", "in quotes"),
    "name=0123": ("must be text", "name", "in quotes"),
    "training.compile=maybe": ("must be true or false", "training.compile", "Default: False"),
    "training.micro_batch_sequences=fast": (
        "'micro_batch_sequences' must be a whole number or 'auto'",
        "--set training.micro_batch_sequences=fast",
        "the most that fit",
    ),
    "model=small": ("keys and values", "model", "{KEY: VALUE}, with the keys shape, config, pretrained"),
    "arms.headless.model=tiny": ("keys and values", "model", "{KEY: VALUE}, with the keys shape, config, pretrained"),
    "arms=[clm, mlm]": ("keys and values", "arms", "{NAME: {objective: VALUE}}, with the keys objective, space"),
    "arms.headless=mlm": ("keys and values", "arms.headless", "{NAME: {objective: VALUE}}"),
    "corpora=my/*.txt": ("keys and values", "corpora", "{sources: [{language: VALUE}]}, with the keys sources, alpha"),
    "corpora.sources=[my.txt]": ("keys and values", "corpora.sources.0", "[{language: VALUE}], with the keys language"),
    "corpora.sources={language: en, files: x}": ("must be a list", "corpora.sources", "[{language: VALUE}]"),
    "arms.headless.options=3": ("keys and values", "arms.headless.options", "Write it as {NAME: VALUE}"),
    "search=tpe": ("keys and values", "search", "{KEY: VALUE}, with the keys budget_per_arm, algorithm"),
    "tokenizer=unigram": ("keys and values", "tokenizer", "{KEY: VALUE}, with the keys train, pretrained"),
    "novalue": ("not key=value", "--set", "as in"),
    "=3": ("not key=value", "--set", "as in"),
    "confirm.seeds=[1": ("not YAML", "--set confirm.seeds=[1", ""),
}


SPACES = {
    # an arm's space: (what, where below it, remedy)
    "{dimensions: {warmup: {type: flot, low: 0, high: 1}}}": (
        "'type' must be one of float, int, choice",
        ".dimensions.warmup.type",
        "did you mean 'float'",
    ),
    "{dimensions: {warmup: {low: 0, high: 1}}}": ("'type' must be one of", ".dimensions.warmup.type", "Valid: choice"),
    "{dimensions: {warmup: 3}}": ("must be keys and values", ".dimensions.warmup", "{NAME: {type: float, low: VALUE"),
    "{dimensions: {warmup: {type: float, low: x, high: 1}}}": ("must be a number", ".dimensions.warmup.low", "low"),
    "{dimensions: {warmup: {type: float, low: 0}}}": ("'high' is missing", ".dimensions.warmup.high", "add the key"),
    "{dimensions: {warmup: {type: float, low: 1, high: 0}}}": ("low (1.0) is above", ".dimensions.warmup", ""),
    "{dimensions: {}}": ("'dimensions' must not be empty", ".dimensions", "{NAME: {type: float"),
    "{dimensions: {warmup: {type: float, low: 0, high: 1}}, first: [{x: 1}]}": ("are no dimensions: x", "", ""),
    "{}": ("'dimensions' is missing", ".dimensions", "add the key"),
    "[1]": ("'space' must be text or keys and values", "", "{dimensions: {NAME: {type: float"),
}


@pytest.mark.parametrize("space", SPACES)
def test_a_mistake_in_an_arms_own_space(tmp_path, space):
    """Said of the member that was meant, by the study's keys alone; of a file, also."""
    what, where, remedy = SPACES[space]
    with pytest.raises(InputError) as caught:
        load_study("demo", [f"arms.vanilla.space={space}"])
    assert what in caught.value.what
    assert caught.value.where.endswith(f"(arms.vanilla.space{where})" if where else space)
    assert remedy in caught.value.remedy
    assert "function-after" not in str(caught.value)
    assert "more to mend" not in caught.value.why
    if space != "[1]":
        (tmp_path / "own.yaml").write_text(space)
        with pytest.raises(InputError) as caught:
            load_study("demo", [f"arms.vanilla.space={tmp_path}/own.yaml"])
        assert what in caught.value.what
        assert caught.value.where.endswith(f"(arms.vanilla.space ({tmp_path}/own.yaml){where})")


@pytest.mark.parametrize("override", MISTAKES)
def test_every_mistake_says_what_where_and_what_to_do(override):
    what, where, remedy = MISTAKES[override]
    with pytest.raises(InputError) as caught:
        load_study("demo", [override])
    assert what in caught.value.what
    assert where in caught.value.where
    assert remedy in caught.value.remedy
    assert "pydantic" not in str(caught.value)


def test_a_mistake_in_the_file_names_file_and_key(tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text((SHIPPED / "demo.yaml").read_text().replace("alpha: 0.5", "alpha: 5"))
    with pytest.raises(InputError) as caught:
        load_study(file)
    assert caught.value.where == f"{file}: corpora.alpha"
    assert caught.value.why == "the value is 5"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is empty"),
        (b"- 1", "type list"),
        (b"a: [1", "line 1, column"),
        (b"name: caf\xe9", "UTF-8"),
        (b"name: a\nname: b\n", "the key 'name' is there twice"),
        (b"name: a", "'corpora' is missing"),
    ],
)
def test_files_that_are_no_study(tmp_path, content, message):
    file = tmp_path / "own.yaml"
    file.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        load_study(file)
    assert str(file) in caught.value.where


def test_several_mistakes_are_counted():
    with pytest.raises(InputError, match=r"1 more to mend: confirm\.top"):
        load_study("demo", ["confirm.seeds=0", "confirm.top=0"])


def test_a_number_of_seeds_alone_is_fixed():
    """With none the study looks after each; a frozen study has what was meant."""
    assert load_study("laptop").confirm.stopping is not None
    for overrides in (["confirm.seeds=8"], ["confirm.top=2"], ["confirm.stopping=null"]):
        spec = load_study("laptop", overrides)
        assert spec.confirm.stopping is None
        assert make_study(yaml.safe_load(dump_study(spec))).confirm == spec.confirm


def test_no_such_study(tmp_path):
    with pytest.raises(InputError, match="did you mean 'demo'"):
        load_study("dmo")
    with pytest.raises(InputError, match="no study lies in"):
        load_study(tmp_path)


@pytest.mark.parametrize(
    "content", [b"some words: and: more\n\nof them\n", b'{"text": "a"}\n{"text": "b"}\n', b"\x1f\x8b"]
)
def test_text_is_no_study_and_can_have_one(tmp_path, content):
    suffix = ".jsonl" if content.startswith(b"{") else ".txt" if content.startswith(b"s") else ".txt.gz"
    file = tmp_path / f"en{suffix}"
    file.write_bytes(content)
    with pytest.raises(InputError, match="this is text to train on, and no study") as caught:
        load_study(file)
    assert f"h2h init {file}" in caught.value.remedy
    with pytest.raises(InputError, match="no study lies in") as caught:
        load_study(tmp_path)
    assert f"h2h init {tmp_path}" in caught.value.remedy


@pytest.mark.parametrize("key", ["corpora.sources[1].files", "corpora.sources[1]", "corpora.sources.1.files"])
def test_what_was_set_on_the_command_line_is_named_as_it_stands_there(key):
    """Whoever checks the text names a source by its number in brackets."""
    one = "corpora.sources.1.files=nothing.txt"
    assert place(key, "own.yaml", [one]) == f"--set {one}"
    assert place(key.replace("1", "0"), "own.yaml", [one]) == f"own.yaml: {key.replace('1', '0')}"


@pytest.mark.parametrize("overrides", ["confirm.seeds=8", [3], None])
def test_overrides_are_a_list_of_texts(overrides):
    with pytest.raises(InputError, match="the overrides are a list of texts, not ") as caught:
        load_study("demo", overrides)
    assert repr(overrides) in caught.value.what


def test_overrides():
    spec = load_study(
        "demo",
        [
            "corpora.sources.1.documents=7",
            "resources.concurrent_trials=2",
            "budget={flops: 1e12}",
            "yardsticks.others=[]",
            "arms.vanilla.training.schedule=cosine",
            "confirm.seeds=3",
            "confirm.seeds=4",
        ],
    )
    assert spec.corpora.sources[1].documents == 7
    assert spec.corpora.sources[0].documents == 1500
    assert spec.resources.concurrent_trials == 2
    assert (spec.budget.unit, spec.budget.amount) == ("flops", 1e12)
    assert spec.yardsticks.others == ()
    assert spec.training_of("vanilla").schedule == "cosine"
    assert spec.training_of("headless").schedule == "linear"
    assert spec.confirm.seeds == 4


def test_overrides_leave_the_callers_dictionaries_alone():
    content = yaml.safe_load((SHIPPED / "demo.yaml").read_text())
    before = yaml.safe_dump(content)
    make_study(content, ["confirm.seeds=3"])
    assert yaml.safe_dump(content) == before


@pytest.mark.parametrize("name", study_names())
def test_shipped_studies_survive_a_round_trip(name):
    spec = load_study(name)
    assert spec.name == name
    assert make_study(yaml.safe_load(dump_study(spec))) == spec


def test_own_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"no file matches .*text/\*\.txt"):
        check_places(load_study("laptop"))
    words = [f"{a}{b}{c}" for a in "bdfgklmn" for b in ("ae", "io", "ou", "ar") for c in "prstvwxyz"]
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "all.txt").write_text(" ".join(words))
    with pytest.raises(InputError, match=r"no document of 'text' is in the \w+ split"):
        check_places(load_study("laptop"))
    for number in range(400):
        text = " ".join(words[(number * i * i + i) % len(words)] for i in range(1000))
        (tmp_path / "text" / f"{number}.txt").write_text(text)
    spec = load_study("laptop", ["tokenizer.train.vocabulary_size=500"])
    check_places(spec)
    assert len(make_tokenizer(spec.corpora, spec.tokenizer)) == 500


def test_a_budget_of_less_flops_than_a_step(tmp_path):
    source = "corpora.sources=[{language: a, grammar: veldan, documents: 500}]"
    spec = load_study("demo", [source, "budget={flops: 1e5}", f"storage={tmp_path}"])
    with pytest.raises(InputError, match="buys no training step of the arm"):
        checked_plans(spec)
