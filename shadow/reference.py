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
"""(attention layer, what the query would attend to) -> what it is made to attend to."""


@dataclass(frozen=True)
class History:
    """`tokens`, what each attention layer has cached of them, and the states of each recurrent layer, float64.

    States are [L, taps, width], one after each token: the recurrence, then the last inputs of the convolution.
    """

    tokens: tuple[int, ...]
    layers: tuple[Seen, ...]
    states: tuple[Tensor, ...] = ()

    def until(self, position: int) -> History:
        """What was cached before the token at `position` came."""
        layers = tuple(layer.map(lambda part: part[:position]) for layer in self.layers)
        return History(self.tokens[:position], layers, tuple(states[:position] for states in self.states))


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
        history = self._nothing()
        for start in range(0, len(tokens), _ROWS):
            _, history = self._forward(tokens[start : start + _ROWS], history)
        return history

    @torch.no_grad()
    def logits(self, history: History, position: int, tamper: Tamper | None = None) -> Tensor:
        """float64 [V] at `position` of the history: what follows tokens[: position + 1]. IndexError beyond it.

        `tamper` changes what this one query attends to, the cached past included.
        """
        if not 0 <= position < len(history.tokens):
            raise IndexError(f"position {position} of a history of {len(history.tokens)} tokens")
        hidden, _ = self._forward(history.tokens[position : position + 1], history.until(position), tamper)
        name = "model.embed_tokens.weight" if self.config.tie_word_embeddings else "lm_head.weight"
        return self._weights[name] @ self._norm(hidden[0], "model.norm")

    def _nothing(self) -> History:
        config = self.config
        keys = torch.empty(0, config.num_key_value_heads, config.head_dim, dtype=torch.float64)
        index = None if config.index_topk is None else keys.new_empty(0, config.index_head_dim)
        recurrent = len(config.recurrent_layers)
        layers = (Seen(keys, keys.clone(), index),) * (config.num_hidden_layers - recurrent)
        return History(
            (), layers, (keys.new_empty(0, config.recurrent_conv, config.recurrent_width),) * recurrent
        )

    def _forward(
        self, tokens: Sequence[int], past: History, tamper: Tamper | None = None
    ) -> tuple[Tensor, History]:
        """(hidden states [n, hidden] before the last norm, the past with these positions added)."""
        hidden = self._weights["model.embed_tokens.weight"][torch.tensor(tokens)]
        positions = torch.arange(len(past.tokens), len(past.tokens) + len(tokens))
        layers: list[Seen] = []
        states: list[Tensor] = []
        for layer in range(self.config.num_hidden_layers):
            prefix = f"model.layers.{layer}."
            normed = self._norm(hidden, prefix + "input_layernorm")
            if layer in self.config.recurrent_layers:
                left = self._recurrence(normed, prefix + "recurrence.", past.states[len(states)])
                states.append(left)
                opened = F.gelu(self._linear(normed, prefix + "recurrence.gate_proj"))
                mixed = self._linear(left[-len(tokens) :, 0] * opened, prefix + "recurrence.out_proj")
            else:
                before = past.layers[len(layers)]
                new = self._cached(normed, prefix + "self_attn.", positions)
                keys, values = torch.cat((before.keys, new.keys)), torch.cat((before.values, new.values))
                index = None
                if before.index is not None and new.index is not None:
                    index = torch.cat((before.index, new.index))
                layers.append(Seen(keys, values, index))
                seen = layers[-1] if tamper is None else tamper(len(layers) - 1, layers[-1])
                mixed = self._attention(normed, prefix + "self_attn.", positions, seen, tamper is None)
            hidden = hidden + mixed
            normed = self._norm(hidden, prefix + "post_attention_layernorm")
            gate, up = (self._linear(normed, f"{prefix}mlp.{part}_proj") for part in ("gate", "up"))
            hidden = hidden + self._linear(F.silu(gate) * up, prefix + "mlp.down_proj")
        return hidden, History((*past.tokens, *tokens), tuple(layers), tuple(states))

    def _recurrence(self, normed: Tensor, prefix: str, past: Tensor) -> Tensor:
        """The states with those after these tokens added: a gate decides how much of the last one stays."""
        state = past[-1] if len(past) else past.new_zeros(past.shape[1:])
        kernel, forgetting = self._weights[prefix + "conv.weight"], self._weights[prefix + "decay"]
        found = []
        for value in self._linear(normed, prefix + "x_proj"):
            window = torch.cat((state[1:], value[None]))
            mixed = (window * kernel).sum(0)
            decaying, entering = (
                torch.sigmoid(self._linear(mixed, prefix + name)) for name in ("decay_gate", "input_gate")
            )
            stays = torch.sigmoid(-forgetting) ** (8 * decaying)
            kept = stays * state[0] + torch.sqrt(1 - stays * stays) * entering * mixed
            state = torch.cat((kept[None], window[1:]))
            found.append(state)
        return torch.cat((past, torch.stack(found)))

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
