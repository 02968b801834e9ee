"""Processes that train one small model together."""

from __future__ import annotations

import torch
from torch import nn
from transformers import AutoModel, BertConfig, GPT2Config, GPTNeoXConfig

from trainables.training.parallel import is_sharded
from trainables.training.world import World

VOCABULARY, LENGTH, SEQUENCES = 53, 8, 8


def full(tensor):
    """The whole of a tensor; of a sharded one all workers must ask."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


class Model(nn.Module):
    """A body and a tied (bert, gpt2) or an own (gpt_neox) head, with methods that are not ``forward``."""

    def __init__(self, family):
        super().__init__()
        common = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
        common["max_position_embeddings"] = LENGTH
        if family == "bert":
            off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
            config = BertConfig(**common, intermediate_size=32, **off)
            self.body = AutoModel.from_config(config, add_pooling_layer=False)
        elif family == "gpt_neox":
            self.body = AutoModel.from_config(GPTNeoXConfig(**common, intermediate_size=32))
        else:
            off = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
            self.body = AutoModel.from_config(GPT2Config(**common, n_inner=32, **off))
        embedding = self.body.get_input_embeddings().weight
        own = family == "gpt_neox"
        self.weight_VD = nn.Parameter(torch.randn(VOCABULARY, 16) / 4) if own else embedding
        self.bias_V = nn.Parameter(torch.zeros(VOCABULARY))

    def hidden(self, token_NL):
        embedded = nn.functional.embedding(token_NL, self.body.get_input_embeddings().weight)
        return self.body(inputs_embeds=embedded).last_hidden_state

    def logits(self, hidden_NLD):
        return hidden_NLD @ self.weight_VD.T + self.bias_V

    def forward(self, token_NL):
        logits_NLV = self.logits(self.hidden(token_NL))
        return nn.functional.cross_entropy(logits_NLV.flatten(0, 1), token_NL.flatten(), reduction="sum")


def make_model(family):
    torch.manual_seed(3)
    return Model(family)


def tokens(step):
    return torch.randint(0, VOCABULARY, (SEQUENCES, LENGTH), generator=torch.Generator().manual_seed(step))


def join(rank, folder, size=2):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=size)
    return World(rank, size)
