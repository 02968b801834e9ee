"""The card of an exported model: what it is, what the study found, how it was trained, how to load it."""

import re
from collections.abc import Iterable

import yaml

from orchestrator import formatting
from orchestrator.analysis.answer import answer_of
from orchestrator.analysis.comparison import Comparison
from orchestrator.analysis.selection import chosen_runs
from orchestrator.ledger.history import History
from orchestrator.ledger.records import ArmDesign, CorpusRecord
from orchestrator.ledger.registry import standing
from orchestrator.ledger.trials import TrialHistory
from orchestrator.reporting.result_tables import arms_table, comparison_table, own_tasks_table
from orchestrator.reporting.table import Table, to_markdown
from trainables.objectives.objective import Scorer
from trainables.training.config import Unit

_UNITS: tuple[Unit, ...] = ("tokens", "steps", "flops", "device_seconds")
_OF: dict[str, str] = {"device_seconds": " of device time"}


def model_card(
    history: History, run: TrialHistory, *, name: str, scorer: Scorer, has_bias: bool, document_attention: bool
) -> str:
    """The card, Markdown with the hub's front matter, by how the model scores the vocabulary, whether its head has a
    bias, and for attention inside documents or not. Its licence is left to whoever publishes the model."""
    assert history.study is not None
    assert history.corpus is not None
    study, design, answer = history.study, history.design, answer_of(history)
    encoder = design.arms[run.arm].task == "masked"
    sections = [
        _front_matter(design.arms[run.arm], history.corpus, encoder=encoder),
        f"# {study.name}: {run.arm}",
        *([f"Question: {' '.join(design.question.split())}"] if design.question else []),
        _origin(history, run, encoder=encoder),
        "## Use",
        _use(name, encoder=encoder),
        *_cautions(encoder=encoder, scorer=scorer, has_bias=has_bias, document_attention=document_attention),
        "## What the study found",
        answer.verdict,
        *_evidence(answer.comparison),
        "## This model",
        _scores(run),
        "## How it was trained",
        _training(history, run),
        "## Text",
        _text(history.corpus, run),
    ]
    return "\n\n".join(sections) + "\n"


def _front_matter(arm: ArmDesign, corpus: CorpusRecord, *, encoder: bool) -> str:
    # The hub refuses what is no ISO 639 code; the table of the text has all languages.
    languages = [code for code in corpus.languages if re.fullmatch("[a-z]{2,3}", code)]
    fields: dict[str, str | list[str]] = {"language": languages} if languages else {}
    fields |= {
        "library_name": "transformers",
        "pipeline_tag": "fill-mask" if encoder else "text-generation",
        "tags": ["headtohead", arm.objective, *(["headless", "arxiv:2309.08351"] if arm.headless else [])],
    }
    return f"---\n{yaml.safe_dump(fields, sort_keys=False)}# license: yours to choose before you publish\n---"


def _origin(history: History, run: TrialHistory, *, encoder: bool) -> str:
    paired = sorted(chosen_runs(history, run.arm).values(), key=lambda other: other.seed)
    completed = [other for other in paired if other.outcome == "completed"]
    origin = f"the trial `{run.trial}`, seed {run.seed}"
    if run.phase == "search":
        origin += ", of the search: it was scored on the validation split, on which its settings were chosen"
    elif completed and run.trial == completed[0].trial:
        origin += (
            f", the first of {formatting.plural(len(completed), 'completed confirmation run')} of the arm's best "
            "configuration; it was taken for its place, not for its score"
        )
    else:
        origin += ", a confirmation run that was asked for by name"
    kind = "An encoder" if encoder else "A decoder"
    objective = history.design.arms[run.arm].objective
    return f"{kind} pretrained with the objective `{objective}`: {origin}."


def _use(name: str, *, encoder: bool) -> str:
    auto, task = ("AutoModelForMaskedLM", "fill-mask") if encoder else ("AutoModelForCausalLM", "text-generation")
    return "\n".join(
        [
            "```python",
            f"from transformers import {auto}, AutoTokenizer, pipeline",
            "",
            f'model = {auto}.from_pretrained("{name}")',
            f'tokenizer = AutoTokenizer.from_pretrained("{name}")',
            f'run = pipeline("{task}", model=model, tokenizer=tokenizer)',
            "```",
        ]
    )


def _cautions(*, encoder: bool, scorer: Scorer, has_bias: bool, document_attention: bool) -> Iterable[str]:
    sequences = "Sequences begin anywhere in a document and a separator token follows each document"
    if encoder:
        yield f"{sequences}; there is no [CLS], and the tokenizer adds no special tokens."
    else:
        yield f"{sequences}; the separator is also the token that generation begins after and ends with."
    if document_attention:
        yield ("In training attention stayed inside documents. Here nothing knows of documents: give it one at a time.")
    if scorer != "head":
        prior = ", plus the log-probability of each token in the training text, which its loss implies"
        yield (
            "It was trained without a vocabulary head. The head that it has now scores as the embeddings that it was "
            f"trained against do, divided by the temperature{prior if scorer == 'embedding+unigram' else ''}: by that "
            "its yardsticks were taken."
            + (
                " Load it in float32, as it is stored: in bfloat16 this head loses digits that the rest does not need."
                if encoder
                else ""
            )
        )
    if has_bias and not encoder:
        yield (
            "Its head has a bias, which decoders of its family have not. So it is written with one attention head more "
            "than it was trained with, whose weights are 0: of the hidden dimensions that this adds one is always 1 in "
            "the last state, and the bias its weights. Its scores are those of the model that was trained; it has more "
            "parameters."
        )


def _evidence(comparison: Comparison) -> Iterable[str]:
    yield "Means over the confirmation runs on the test split ± standard deviation:"
    yield to_markdown(arms_table(comparison))
    if comparison.pairs:
        yield "Differences, with 95% intervals and p-values of paired t-tests, adjusted over all pairs of arms:"
        yield to_markdown(comparison_table(comparison))
    if (tasks := own_tasks_table(comparison)).rows:
        yield "Downstream tasks, the share that is right of each, or its metric (exploratory):"
        yield to_markdown(tasks)
    yield (
        "Yardsticks mean the same for every arm of a task. Losses do not: cross-entropy and contrastive losses differ "
        "in scale and cannot be compared, so none is given here."
    )


def _scores(run: TrialHistory) -> str:
    measured = run.evaluations[-1].yardsticks if run.evaluations else {}
    languages = sorted({language for score in measured.values() for language in score.languages})
    rows = [
        [name, formatting.score(score.overall)]
        + [formatting.score(score.languages.get(language)) for language in languages]
        for name, score in measured.items()
    ]
    return to_markdown(Table.of(["yardstick", "overall", *languages], rows))


def _training(history: History, run: TrialHistory) -> str:
    assert history.study is not None
    assert history.corpus is not None
    study, unit = history.study, history.design.unit
    searched = sum(history.spent("search", arm, unit) for arm in history.design.arms)
    spent = (formatting.quantity(run.spent[u], u) + _OF.get(u, "") for u in _UNITS if u in run.spent)
    rows = [
        ["budget of the trial", f"{formatting.quantity(run.amount, unit)}{_OF.get(unit, '')}"],
        ["spent", ", ".join(spent)],
        ["search of all arms", formatting.quantity(searched, unit) + _OF.get(unit, "")],
        ["settings found by the search", formatting.settings(run.configuration, ", ")],
        ["seed", str(run.seed)],
        ["digest of the data seen", f"`{run.measures[-1].digest}`"],
        ["fingerprint of the corpus", f"`{history.corpus.fingerprint}`"],
        ["digest of the study", f"`{study.digest}`"],
        ["head of the ledger", f"`{history.head}`"],
        *([["begun as", began]] if (began := standing(history.first)) else []),
        ["versions", ", ".join(f"{package} {version}" for package, version in study.versions.items())],
    ]
    return to_markdown(Table.of(["", ""], rows))


def _text(corpus: CorpusRecord, run: TrialHistory) -> str:
    seen = run.measures[-1].mix
    rows = [
        [
            language,
            f"{counts.documents:,}",
            f"{counts.tokens:,}",
            f"{counts.target_share:.1%}",
            f"{seen.get(language, 0) * corpus.sequence_length:,}",
        ]
        for language, counts in corpus.languages.items()
    ]
    titles = ["language", "documents", "tokens", "share of training", "tokens seen in training"]
    tokens = f"Sequences of {corpus.sequence_length} tokens, a vocabulary of {corpus.vocabulary_size:,}."
    return f"{tokens}\n\n{to_markdown(Table.of(titles, rows))}"
