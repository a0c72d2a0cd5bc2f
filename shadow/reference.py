"""A Llama-family model in float64, without paging, batches or caches of pages: what the logits should have been.

Written apart from batchgen.models.llama on purpose: it shares the weights, the rotary frequencies and nothing
else. The rotation angles are rounded to float32, as every implementation of the family does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from batchgen.config import ModelConfig
from batchgen.models import state_dict_for_reference
from batchgen.models.rope import inverse_frequencies

_ROWS = 256  # queries attended to at once while a history is computed: bounds the memory of its scores


@dataclass(frozen=True)
class Seen:
    """What one query attends to in one layer: keys and values [L, Hkv, D], index keys [L, Di] where there are."""

    keys: Tensor
    values: Tensor
    index: Tensor | None = None

    def map(self, change: Callable[[Tensor], Tensor]) -> Seen:
        """The same change of positions in every part."""
        index = None if self.index is None else change(self.index)
        return Seen(change(self.keys), change(self.values), index)


Tamper = Callable[[int, Seen], Seen]
"""(layer, what the query would attend to) -> what it is made to attend to."""


@dataclass(frozen=True)
class History:
    """`tokens` and what each layer has cached of them, float64."""

    tokens: tuple[int, ...]
    layers: tuple[Seen, ...]


class Reference:
    """float64 on CPU. `dtype`: of the engine's weights, through which they are rounded first."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, Tensor], dtype: torch.dtype) -> None:
        self.config = config
        self._weights = {name: tensor.to(dtype).double() for name, tensor in weights.items()}
        self._frequencies = inverse_frequencies(config)

    @classmethod
    def load(cls, model: str, *, dtype: torch.dtype = torch.float32, seed: int = 0) -> Reference:
        """`model` as batchgen.models.load_model takes it. ModelLoadError where it cannot be loaded."""
        config, weights = state_dict_for_reference(model, seed=seed)
        return cls(config, weights, dtype)

    @torch.no_grad()
    def history(self, tokens: Sequence[int]) -> History:
        """What the model caches of `tokens`, one after the other from position 0."""
        layers = tuple(self._empty() for _ in range(self.config.num_hidden_layers))
        for start in range(0, len(tokens), _ROWS):
            _, layers = self._forward(tokens[start : start + _ROWS], start, layers)
        return History(tuple(tokens), layers)

    @torch.no_grad()
    def logits(self, history: History, position: int, tamper: Tamper | None = None) -> Tensor:
        """float64 [V] at `position` of the history: what follows tokens[: position + 1]. IndexError beyond it.

        `tamper` changes what this one query attends to, the cached past included.
        """
        if not 0 <= position < len(history.tokens):
            raise IndexError(f"position {position} of a history of {len(history.tokens)} tokens")
        past = tuple(layer.map(lambda part: part[:position]) for layer in history.layers)
        hidden, _ = self._forward(history.tokens[position : position + 1], position, past, tamper)
        name = "model.embed_tokens.weight" if self.config.tie_word_embeddings else "lm_head.weight"
        return self._weights[name] @ self._norm(hidden[0], "model.norm")

    def _empty(self) -> Seen:
        config = self.config
        keys = torch.empty(0, config.num_key_value_heads, config.head_dim, dtype=torch.float64)
        index = None if config.index_topk is None else keys.new_empty(0, config.index_head_dim)
        return Seen(keys, keys.clone(), index)

    def _forward(
        self, tokens: Sequence[int], start: int, past: tuple[Seen, ...], tamper: Tamper | None = None
    ) -> tuple[Tensor, tuple[Seen, ...]]:
        """(hidden states [n, hidden] before the last norm, the past with these positions added)."""
        hidden = self._weights["model.embed_tokens.weight"][torch.tensor(tokens)]
        positions = torch.arange(start, start + len(tokens))
        caches = []
        for layer, before in enumerate(past):
            prefix = f"model.layers.{layer}."
            normed = self._norm(hidden, prefix + "input_layernorm")
            new = self._cached(normed, prefix + "self_attn.", positions)
            keys, values = torch.cat((before.keys, new.keys)), torch.cat((before.values, new.values))
            index = None
            if before.index is not None and new.index is not None:
                index = torch.cat((before.index, new.index))
            caches.append(Seen(keys, values, index))
            seen = caches[-1] if tamper is None else tamper(layer, caches[-1])
            hidden = hidden + self._attention(normed, prefix + "self_attn.", positions, seen, tamper is None)
            normed = self._norm(hidden, prefix + "post_attention_layernorm")
            gate, up = (self._linear(normed, f"{prefix}mlp.{part}_proj") for part in ("gate", "up"))
            hidden = hidden + self._linear(F.silu(gate) * up, prefix + "mlp.down_proj")
        return hidden, tuple(caches)

    def _cached(self, normed: Tensor, prefix: str, positions: Tensor) -> Seen:
        config = self.config
        heads = (-1, config.num_key_value_heads, config.head_dim)
        keys = self._rotate(self._linear(normed, prefix + "k_proj").view(heads), positions)
        values = self._linear(normed, prefix + "v_proj").view(heads)
        index = None if config.index_topk is None else self._linear(normed, prefix + "indexer.k_proj")
        return Seen(keys, values, index)

    def _attention(self, normed: Tensor, prefix: str, positions: Tensor, seen: Seen, causal: bool) -> Tensor:
        config = self.config
        rows, kv_heads, length = normed.shape[0], config.num_key_value_heads, seen.keys.shape[0]
        queries = self._linear(normed, prefix + "q_proj").view(rows, -1, config.head_dim)
        grouped = self._rotate(queries, positions).view(rows, kv_heads, -1, config.head_dim)
        hidden = torch.zeros(rows, length, dtype=torch.bool)
        if causal:
            hidden = torch.arange(length)[None, :] > positions[:, None]
        if seen.index is not None:
            hidden = hidden | ~self._chosen(normed, prefix + "indexer.", seen.index, hidden)
        scores = torch.einsum("nhgd,lhd->nhgl", grouped, seen.keys) / math.sqrt(config.head_dim)
        weights = scores.masked_fill_(hidden[:, None, None, :], -math.inf).softmax(-1)
        attended = torch.einsum("nhgl,lhd->nhgd", weights, seen.values)
        return self._linear(attended.reshape(rows, -1), prefix + "o_proj")

    def _chosen(self, normed: Tensor, prefix: str, keys: Tensor, hidden: Tensor) -> Tensor:
        """bool [n, L]: the positions that the index heads score highest, the earlier one in a tie."""
        config = self.config
        assert config.index_topk is not None
        queries = self._linear(normed, prefix + "q_proj").view(len(normed), -1, config.index_head_dim)
        weights = self._linear(normed, prefix + "weights_proj")
        scores = (torch.einsum("nhd,ld->nhl", queries, keys).relu() * weights[:, :, None]).sum(1)
        scores = scores.masked_fill(hidden, -math.inf)
        best = scores.sort(dim=1, descending=True, stable=True).indices[:, : config.index_topk]
        return torch.zeros_like(hidden).scatter_(1, best, True)

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self._weights[name + ".weight"], self._weights.get(name + ".bias"))

    def _norm(self, x: Tensor, name: str) -> Tensor:
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + self.config.rms_norm_eps)
        return x * scale * self._weights[name + ".weight"]

    def _rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """[n, heads, D], halves rotated against each other by position x frequency."""
        angles = (positions[:, None].float() * self._frequencies).double()[:, None]
        first, second = x.chunk(2, -1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
