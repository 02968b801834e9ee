"""Headless against vanilla pretraining on text files of your own.

python examples/own_text.py 'my/*.txt' [KEY=VALUE ...]
"""

import sys

from orchestrator import Study

files, *overrides = sys.argv[1:]

study = Study(
    {
        "name": "own-text",
        "question": "Do headless encoders recover held-out tokens of my text better, for the same tokens?",
        "corpora": {"sources": [{"language": "en", "files": files}], "sequence_length": 64},
        "tokenizer": {"train": {"type": "byte_bpe", "vocabulary_size": 2000}},
        "model": {"shape": "tiny"},
        "training": {"batch_sequences": 16},
        "arms": {"headless": {"objective": "headless_mlm"}, "vanilla": {"objective": "mlm"}},
        "budget": {"tokens": 200_000},
        "search": {"budget_per_arm": 4},
        "confirm": {"seeds": 6},
    },
    overrides,
)
study.say = print  # what is done before the first trial
results = study.run()
print(results.trials[["arm", "phase", "outcome", "bits_per_byte"]].to_string())
print(results.verdict)
