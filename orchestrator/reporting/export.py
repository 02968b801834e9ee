"""``h2h export``: what a study trained, in Hugging Face format, with the study's evidence on its card."""

from __future__ import annotations

from orchestrator.analysis.selection import chosen_runs
from orchestrator.config.files import open_frozen
from orchestrator.ledger.history import History
from orchestrator.ledger.trials import TrialHistory
from orchestrator.reporting.model_card import model_card
from orchestrator.reporting.results import Results
from orchestrator.scheduling.trained import trained
from trainables.errors import InputError, nearest, refusal, storage_errors
from trainables.storage import Location


def export_study(
    folder: Location,
    to: Location,
    *,
    arm: str | None = None,
    trial: str | None = None,
    repository: str | None = None,
    force: bool = False,
) -> tuple[str, ...]:
    """Write one trained model of a study into a folder, new, empty or (``force``) not, on this machine or an object
    store; returns the files' names. Without ``trial`` it is the arm's run at the first of the paired seeds, with the
    configuration that stands for the arm: the best of the seeds would be better than the evidence on its card says. The
    arm may be left out of a study with one, or with ``trial``; the card names the hub's ``repository``, else the
    folder. Raises InputError if there is no such arm or trial, or none that is completed; its checkpoint or corpus is
    gone; or the folder is not empty."""
    from trainables.models.export import export_model

    try:
        names = [] if force else to.names()
    except OSError as error:  # a file, for one
        raise refusal(error, f"cannot write to {to}", "--to") from error
    if names:
        raise InputError(
            f"{to} is not empty",
            where="--to",
            why="files of the same names would be replaced",
            remedy="another folder, or --force to write into this one",
        )
    history, spec = Results(folder).history, open_frozen(folder)
    run = _named_run(history, arm, trial) if trial is not None else _chosen_run(history, arm, folder)
    config, corpus, learner = trained(history, spec, run, folder)
    head = learner.objective.scoring_head(learner)
    card = model_card(
        history,
        run,
        name=repository or to.name,
        scorer=learner.objective.scorers[0],
        has_bias=head.bias is not None,
        document_attention=config.document_attention,
    )
    try:
        return export_model(learner.body, head, learner.config, corpus.tokenizer(), to, card)
    except OSError as error:
        raise refusal(error, f"cannot write to {to}", "--to") from error


def _chosen_run(history: History, arm: str | None, folder: Location) -> TrialHistory:
    arms = history.design.arms
    if arm is None and len(arms) > 1:
        raise InputError(
            f"the study has {len(arms)} arms", where="--arm", remedy=f"name one: --arm {' or --arm '.join(arms)}"
        )
    arm = arm if arm is not None else next(iter(arms))
    if arm not in arms:
        raise InputError(f"no arm is called '{arm}'", where="--arm", remedy=nearest(arm, arms))
    completed = [run for _, run in sorted(chosen_runs(history, arm).items()) if run.outcome == "completed"]
    if not completed:
        raise InputError(
            f"no confirmation run of the arm '{arm}' is completed yet",
            where=str(folder),
            why="they come last, after the search",
            remedy=f"h2h resume {folder}   goes on to them;   --trial NAME exports a trial of the search",
        )
    return completed[0]


def _named_run(history: History, arm: str | None, trial: str) -> TrialHistory:
    completed = {
        run.trial: run for run in history.trials.values() if run.outcome == "completed" and arm in (None, run.arm)
    }
    if trial not in completed:
        known = history.trials.get(trial)
        state = known and (f"is one of the arm {known.arm}" if known.outcome == "completed" else known.outcome)
        raise InputError(
            f"no completed trial is called '{trial}'",
            where="--trial",
            why=f"{trial}: {state or 'not ended yet'}" if known else "",
            remedy=nearest(trial, completed),
        )
    return completed[trial]


def push(folder: Location, names: tuple[str, ...], repository: str) -> str:
    """Upload an exported model to the hub's repository, ``OWNER/NAME`` or ``NAME``, made private if it is new; returns
    its address. Raises InputError if the folder is on an object store, or there is no network, token or right."""
    if folder.local is None:
        raise InputError(
            "only a folder on this machine can be pushed", where="--to", remedy="--to FOLDER, and push from there"
        )
    from huggingface_hub import HfApi

    hub = HfApi()
    refusals: tuple[type[Exception], ...] = (ValueError, *storage_errors())
    try:
        address = hub.create_repo(repository, private=True, exist_ok=True)
        hub.upload_folder(
            repo_id=address.repo_id,
            folder_path=folder.local,
            allow_patterns=list(names),
            commit_message=f"h2h export: {folder.name}",
        )
    except refusals as error:
        raise InputError(
            f"the model could not be pushed to {repository}",
            where="--push-to-hub",
            why=str(error).strip().splitlines()[0],
            remedy=f"hf auth login with a token that may write, then: hf upload {repository} {folder.local}",
        ) from error
    return str(address)
