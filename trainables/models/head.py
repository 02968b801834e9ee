"""The head: a vocabulary projection as a model's family has it, and one made of a headless model's embedding.

Letters: K positions, D hidden size, V vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.models.bert.modeling_bert import BertPredictionHeadTransform

from trainables.errors import InputError

LARGEST_SHIFT = 1e4
"""How many times its weight the bias of a body's last LayerNorm may be, for its inverse to be exact in float32."""

SMALLEST_OFFSET = 4.0  # a transform whose median bias is greater carries one; drawn or trained biases are about zero


class Head(nn.Module):
    """The vocabulary projection of a vanilla model, as its family has it.

    BERT: a transform, the input embedding as weights (tied), a bias. GPT-NeoX: weights of its own, no bias. GPT-2:
    the input embedding as weights, no bias. ``config.tie_word_embeddings`` may say otherwise.
    """

    def __init__(self, config: PreTrainedConfig, embedding: nn.Parameter) -> None:
        super().__init__()
        self.transform: nn.Module | None = None
        self.bias: nn.Parameter | None = None
        self.has_offset = False
        if config.model_type == "bert":
            self.transform = BertPredictionHeadTransform(config)
            self.bias = nn.Parameter(torch.zeros(config.vocab_size))
            for module in self.transform.modules():
                if isinstance(module, nn.Linear):
                    nn.init.normal_(module.weight, std=config.initializer_range)
                    nn.init.zeros_(module.bias)
        if config.tie_word_embeddings:
            self.weight_VD = embedding
        else:
            self.weight_VD = nn.Parameter(torch.empty_like(embedding))
            nn.init.normal_(self.weight_VD, std=config.initializer_range)

    def forward(self, hidden_KD: Tensor) -> Tensor:
        """What the weights are multiplied with, (K, D)."""
        if self.transform is None:
            return hidden_KD
        if self.has_offset:  # the offset of the transform leaves too few digits in bfloat16
            with torch.autocast(hidden_KD.device.type, enabled=False):
                restored: Tensor = self.transform(hidden_KD.to(self.weight_VD.dtype))
            return restored
        transformed: Tensor = self.transform(hidden_KD)
        return transformed

    def logits(self, hidden_KD: Tensor) -> Tensor:
        """Scores of the whole vocabulary, (K, V)."""
        return F.linear(self(hidden_KD), self.weight_VD, self.bias)

    def find_offset(self) -> None:
        """See whether the transform is one of :meth:`over`'s, after weights were loaded into it."""
        if isinstance(self.transform, BertPredictionHeadTransform):
            self.has_offset = bool(self.transform.dense.bias.median() > SMALLEST_OFFSET)

    @classmethod
    def over(
        cls,
        config: PreTrainedConfig,
        weight_VD: nn.Parameter,
        temperature: float,
        final_norm: nn.LayerNorm | None,
        bias_V: Tensor | None = None,
        *,
        learned: bool = False,
    ) -> Head:
        """The head that scores ``hidden @ weight_VD.T / temperature + bias_V``: of a headless model, an ordinary one.

        A decoder's weights are ``weight_VD / temperature``: a new parameter, or where the family ties and the
        temperature is 1 and not learned ``weight_VD`` itself. BERT's are ``weight_VD`` itself wherever the family
        ties; its transform becomes the division by the temperature, by the LayerNorm that makes the body's last hidden
        states (see :func:`_make_division`, also for the InputError). A decoder's head has a bias where one is given,
        which its family's has not. All of it can be trained on. Which parameters the head has depends on whether there
        is a bias and the temperature was learned, not on what became of them.
        """
        with torch.random.fork_rng(devices=[]):  # what is drawn here is written over
            head = cls(config, weight_VD)
        scale = temperature if head.transform is None else 1.0
        scaled = head.transform is None and (learned or temperature != 1.0)
        if scaled or not config.tie_word_embeddings:
            head.weight_VD = nn.Parameter(weight_VD.detach() / scale)
        if bias_V is not None:
            head.bias = nn.Parameter(bias_V.detach().clone())
        if isinstance(head.transform, BertPredictionHeadTransform):
            assert final_norm is not None
            _make_division(head.transform, final_norm, temperature)
            head.find_offset()
        return head.to(weight_VD.device, weight_VD.dtype)


@torch.no_grad()
def _make_division(transform: BertPredictionHeadTransform, final_norm: nn.LayerNorm, temperature: float) -> None:
    """Makes the transform (dense, activation, LayerNorm) divide the body's last hidden states by the temperature.

    They come out of a LayerNorm: ``x = w z + b``, with z of zero mean, unit variance and so ``|z| <= sqrt(D - 1)``.
    ``dense`` undoes w and b and adds an offset by which all z lie where the activation is the identity. The
    transform's LayerNorm takes the offset off, as it is the mean, leaves z as it is, and multiplies by ``w /
    temperature`` and adds ``b / temperature``. In float32 the offset costs half a unit in its last place, an error
    of 2e-6 in z at D = 768; bfloat16 has steps of 0.25 there.
    """
    w_D, b_D = final_norm.weight.double(), final_norm.bias.double()
    if not bool((b_D.abs() <= LARGEST_SHIFT * w_D.abs()).all() and (w_D != 0).all()):
        raise InputError(
            "this encoder cannot be given a head that scores as its input embedding does",
            why="its last LayerNorm has weights near zero, and what they multiply cannot be told back from the output",
            remedy="train it with an objective that has a head, such as mlm",
        )
    offset = len(w_D) ** 0.5 + _margin(transform, len(w_D))
    transform.dense.weight.copy_((1 / w_D).diag())
    transform.dense.bias.copy_(offset - b_D / w_D)
    # Both LayerNorms divide by sqrt(variance + eps); the first one's input has a variance far above eps.
    norm = transform.LayerNorm
    norm.weight.copy_(w_D / temperature * (1 + norm.eps) ** 0.5)
    norm.bias.copy_(b_D / temperature)


def _margin(transform: BertPredictionHeadTransform, hidden_size: int) -> float:
    """From where on the activation is the identity in float32: 0 for relu, below 6 for gelu, 18 for silu."""
    for margin in (0.0, 6.0, 18.0):
        value = torch.linspace(margin, margin + 2 * hidden_size**0.5, 4096)
        if torch.allclose(transform.transform_act_fn(value), value, rtol=2e-7, atol=0.0):
            return margin
    raise InputError(
        "this encoder cannot be given a head that scores as its input embedding does",
        where="model.config.hidden_act",
        why="its activation is nowhere the identity",
        remedy="hidden_act: gelu or relu",
    )
