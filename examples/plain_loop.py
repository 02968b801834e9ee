"""A headless decoder in a plain PyTorch loop: the parts of ``trainables``, without a study and without Ray Tune.

python examples/plain_loop.py [STEPS]
"""

import sys
from statistics import fmean

import ray
import torch

from trainables.corpora.config import CorporaConfig, TokenizerConfig
from trainables.corpora.preparation.prepare import prepare
from trainables.corpora.preparation.tokenizer_sample import make_tokenizer
from trainables.corpora.stream.packed import PackedCorpus
from trainables.corpora.stream.token_stream import TokenStream, local_batches
from trainables.models.body_config import body_config
from trainables.models.config import ModelConfig
from trainables.objectives import find_objective
from trainables.objectives.learner import Learner
from trainables.storage import Location
from trainables.training.batch import BatchMaker
from trainables.training.world import World

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 400
BATCH_SEQUENCES, REPORT_STEPS = 16, 20

# From text to sequences of tokens, a Ray Data job. It is done once: the next run finds the corpus.
sources = [{"language": "veldan", "grammar": "veldan", "documents": 2000}]
corpora = CorporaConfig.model_validate({"sources": sources, "sequence_length": 64})
tokenizer = make_tokenizer(corpora, TokenizerConfig.model_validate({"train": {"vocabulary_size": 1000}}))
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
manifest = prepare(corpora, tokenizer, Location("corpora"))
ray.shutdown()

# The stream: the training sequences in the order of a seed.
corpus = PackedCorpus(Location("corpora") / manifest.fingerprint)
stream = TokenStream(corpus, seed=0, alpha=corpora.alpha, maximum_repetition=corpora.maximum_repetition)
batches = local_batches(stream, start=0, batch_size=BATCH_SEQUENCES)

# The model: a body of Hugging Face's, under its objective.
objective = find_objective("headless_clm").of({})
config = body_config(
    ModelConfig(shape="tiny"),
    objective.task,
    vocabulary_size=manifest.vocabulary_size,
    sequence_length=manifest.sequence_length,
)
torch.manual_seed(0)
model = Learner(config, objective)
optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
maker = BatchMaker(model, stream, mask_rate=0.15, world=World())

losses = []
for step, batch in zip(range(STEPS), batches, strict=False):
    (part,) = maker.prepare(batch, first=step * BATCH_SEQUENCES)
    loss = model(maker.send(part)) / part.num_targets
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    losses.append(loss.item())
    if (step + 1) % REPORT_STEPS == 0:
        print(f"step {step + 1:4}  loss {fmean(losses[-REPORT_STEPS:]):.3f}", flush=True)
