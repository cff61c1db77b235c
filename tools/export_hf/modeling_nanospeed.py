"""The GPTs of the NanoGPT speedrun as nanospeed trains them, in plain PyTorch.

One class for all records; what differs between them is in the configuration. Loaded in bfloat16
it rounds where nanospeed rounds: chains of float32 arithmetic, each rounded once where nanospeed
stores a bfloat16 tensor. Loaded in float32 nothing is rounded but the rotary tables, which are part
of what the weights were trained to.

A document begins at each token config.bos_token_id; no token attends to another document. The first
token should be one: training knows no text without. Generation computes the whole context again for
each token (there is no cache of keys and values).
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter

import torch
import torch.nn.functional as F
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from .configuration_nanospeed import NanospeedConfig

EPS = 1.1920929e-07  # of all rms norms


def rms_norm(x: torch.Tensor) -> torch.Tensor:
    """float32, over the last axis."""
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)


def gate(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """float32 in (0, 1), one for each row of weight; it reads the first features of x."""
    return (x[..., : weight.shape[-1]].float() @ weight.float().t()).sigmoid()


def add_product(x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """x + y weight^T, rounded once."""
    return torch.addmm(x.flatten(0, 1), y.flatten(0, 1), weight.t()).view_as(x)


def before(x: torch.Tensor, has_before: torch.Tensor, otherwise: torch.Tensor) -> torch.Tensor:
    """x [B, T, ...] of the token before; `otherwise` where there is none."""
    shifted = torch.cat([x[:, :1], x[:, :-1]], 1)
    return torch.where(has_before.view(*has_before.shape, *[1] * (x.dim() - 2)), shifted, otherwise)


def offset_keys(k: torch.Tensor, has_before: torch.Tensor) -> torch.Tensor:
    """[B, T, heads, d]: features [d/4, d/2) and [3d/4, d) are those of the token before."""
    quarter = torch.arange(k.shape[-1], device=k.device) // (k.shape[-1] // 4)
    return torch.where(quarter % 2 == 1, before(k, has_before, k), k)


def rotate(x: torch.Tensor, theta: torch.Tensor, neighbours: bool, dtype: torch.dtype):
    """x [B, T, heads, d] turned by -theta. Pairs are neighbours, or halves; tables are `dtype`."""
    cos, sin = (table.to(dtype).float() for table in (theta.cos(), theta.sin()))
    a, b = (x[..., 0::2], x[..., 1::2]) if neighbours else x.chunk(2, -1)
    turned = a * cos + b * sin, b * cos - a * sin
    return torch.stack(turned, -1).flatten(-2) if neighbours else torch.cat(turned, -1)


@dataclasses.dataclass
class Places:
    """Where tokens stand: [B, T] each. Padding in front of a text counts for nothing."""

    positions: torch.Tensor
    documents: torch.Tensor  # the number of the token's document
    valid: torch.Tensor  # not padding
    has_before: torch.Tensor  # there is a token before this one

    @classmethod
    def of(cls, tokens: torch.Tensor, attention_mask: torch.Tensor | None, bos: int) -> Places:
        valid = torch.ones_like(tokens, dtype=torch.bool)
        if attention_mask is not None:
            valid = attention_mask.bool()
        positions = (valid.cumsum(-1) - 1).clamp(min=0)
        return cls(positions, (tokens == bos).cumsum(-1), valid, valid & (positions > 0))

    def paired(self) -> Places:
        """Each token as two neighbours."""
        twice = 2 * self.positions.repeat_interleave(2, -1)
        twice[:, 1::2] += 1
        rest = (t.repeat_interleave(2, -1) for t in (self.documents, self.valid, self.has_before))
        return Places(twice, *rest)

    def mask(self, window: int, block: int) -> torch.Tensor:
        """Bool [B, 1, T, T]: the keys that each query sees."""
        query, key = self.positions[:, :, None], self.positions[:, None, :]
        if block > 0:
            near = query // block - key // block < max(window // block, 1)
        else:
            near = query - key <= window
        same = self.documents[:, :, None] == self.documents[:, None, :]
        seen = near & (key <= query) & same & self.valid[:, None, :]
        itself = torch.eye(seen.shape[-1], dtype=torch.bool, device=seen.device)
        return (seen | itself)[:, None]  # padding sees itself, so that nothing is NaN


class Weight(nn.Module):
    """A parameter named `weight`, as linear and embedding layers have it."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape))


def add_weight(module: nn.Module, name: str, *shape: int) -> None:
    """A parameter of the module; NAME.weight is one of a module of its own."""
    if name.endswith(".weight"):
        setattr(module, name.removesuffix(".weight"), Weight(*shape))
    else:
        setattr(module, name, nn.Parameter(torch.empty(shape)))


class NanospeedForCausalLM(PreTrainedModel, GenerationMixin):
    config_class = NanospeedConfig
    # Their rounding to bfloat16 would be no rounding that training does.
    _keep_in_fp32_modules_strict = ["scalars", "x0_lambdas"]

    def __init__(self, config: NanospeedConfig) -> None:
        super().__init__(config)
        self.banks = config.storage == "banks"
        self.attention_layers = [i for i, la in enumerate(config.layers) if la["attention"]]
        self.value_layers = [i for i, la in enumerate(config.layers) if la["value_embedding"] >= 0]
        dim, rows = config.hidden_size, config.embedding_rows
        self.embed = Weight(rows, dim)
        self.value_embeds = nn.ModuleList(Weight(rows, dim) for _ in range(config.value_embeddings))
        self.scalars = nn.Parameter(torch.empty(config.scalar_count))
        if config.smear_lambda >= 0:
            self.smear_gate = Weight(1, config.gate_features)
        if config.skip_weight == "gate":
            self.skip_gate = Weight(1, config.gate_features)
        if self.banks:
            self._make_banks(config)
        else:
            self._make_layers(config)
        transposed = config.head_layout == "dim_vocab"
        head = (dim, config.vocab_size) if transposed else (config.vocab_size, dim)
        add_weight(self, config.head_name, *head)
        self.post_init()

    def _make_layers(self, config: NanospeedConfig) -> None:
        dim, mlp_dim = config.hidden_size, config.intermediate_size
        wide, high = (dim, mlp_dim), (mlp_dim, dim)
        shapes = {"dim_hidden": (wide, wide), "out_in": (high, wide), "hidden_dim": (high, high)}
        self.blocks = nn.ModuleList(nn.Module() for _ in config.layers)
        for block, layer in zip(self.blocks, config.layers):
            block.attn, block.mlp = nn.Module(), nn.Module()
            if layer["attention"]:
                shape = (4, dim, dim) if config.qkvo_shape == "stack" else (dim, 4 * dim)
                block.attn.qkvo_w = nn.Parameter(torch.empty(shape))
            if layer["attention"] and config.attention_gate:
                block.attn.attn_gate = Weight(config.num_attention_heads, config.gate_features)
            if layer["value_embedding"] >= 0 and config.value_mix == "gate":
                block.attn.ve_gate = Weight(config.num_attention_heads, config.gate_features)
            if layer["mlp"]:
                for name, shape in zip(config.mlp_names, shapes[config.mlp_layout]):
                    add_weight(block.mlp, name, *shape)

    def _make_banks(self, config: NanospeedConfig) -> None:
        dim, layers = config.hidden_size, len(config.layers)
        heads, features = config.num_attention_heads, config.gate_features
        slots = (layers + 3) // 4 * 4
        attention = len(self.attention_layers)
        if config.split_attention_banks:  # pairs of heads of Q, then of K; V, then O
            self.qk_bank = nn.Parameter(torch.empty(attention * heads, 2 * config.head_dim, dim))
            self.vo_bank = nn.Parameter(torch.empty(2 * attention, dim, dim))
        else:
            self.attn_bank = nn.Parameter(torch.empty(attention, 4 * dim, dim))
        self.mlp_bank = nn.Parameter(torch.empty(slots, 2, config.intermediate_size, dim))
        if config.attention_gate:
            self.attn_gate_bank = nn.Parameter(torch.empty(attention, heads, features))
        if self.value_layers and config.value_mix == "gate":
            self.ve_gate_bank = nn.Parameter(torch.empty(len(self.value_layers), heads, features))
        self.x0_lambdas = nn.Parameter(torch.empty(layers))

    def _init_weights(self, module: nn.Module) -> None:
        """Small noise. nanospeed starts a training otherwise."""
        for name, weight in module.named_parameters(recurse=False):
            if name in ("scalars", "x0_lambdas"):
                nn.init.ones_(weight)
            else:
                nn.init.normal_(weight, std=0.02)

    def get_input_embeddings(self) -> nn.Module:
        return self.embed

    # The weights by their roles, however they are stored.

    def _scalar(self, place: int) -> torch.Tensor:
        """x0_lambdas stand behind `scalars`."""
        count = len(self.scalars)
        return self.scalars[place] if place < count else self.x0_lambdas[place - count]

    def _qkvo(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        """[3 D, D] of Q, K and V, [D, D] of O."""
        dim = self.config.hidden_size
        if not self.banks:
            stack = self.blocks[i].attn.qkvo_w.view(4 * dim, dim)
        elif self.config.split_attention_banks:
            slot = self.attention_layers.index(i)
            halves = (bank.view(-1, 2 * dim, dim)[slot] for bank in (self.qk_bank, self.vo_bank))
            stack = torch.cat(list(halves))
        else:
            stack = self.attn_bank[self.attention_layers.index(i)]
        at = self.config.layers[i]["attention_factor"]
        if at < 0:
            return stack[: 3 * dim], stack[3 * dim :]
        qkv, out = self._scalar(at) * stack[: 3 * dim], self._scalar(at + 1) * stack[3 * dim :]
        return qkv.to(stack.dtype), out.to(stack.dtype)

    def _attention_gate(self, i: int) -> torch.Tensor | None:
        if not self.config.attention_gate:
            return None
        if self.banks:
            return self.attn_gate_bank[self.attention_layers.index(i)]
        return self.blocks[i].attn.attn_gate.weight

    def _value_gate(self, i: int) -> torch.Tensor:
        if self.banks:
            return self.ve_gate_bank[self.value_layers.index(i)]
        return self.blocks[i].attn.ve_gate.weight

    def _mlp(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        """[hidden, D] and [D, hidden]."""
        if self.banks:
            first, second = self.mlp_bank[i]
        else:
            first, second = (attrgetter(name)(self.blocks[i].mlp) for name in self.config.mlp_names)
        layout = self.config.mlp_layout
        return (first.t() if layout == "dim_hidden" else first,
                second.t() if layout == "hidden_dim" else second)

    # The forward pass.

    def _first_stream(self, tokens: torch.Tensor, places: Places) -> torch.Tensor:
        e = F.embedding(tokens, self.embed.weight)
        if self.config.smear_lambda < 0:
            return rms_norm(e).to(e.dtype)
        amount = self._scalar(self.config.smear_lambda) * gate(e, self.smear_gate.weight)
        neighbour = before(e, places.has_before, torch.zeros_like(e)).float()
        return rms_norm(e.float() + amount * neighbour).to(e.dtype)

    def _mix(self, i: int, x: torch.Tensor, x0: torch.Tensor, saved: torch.Tensor | None):
        """The stream into layer i, with the skip connection that ends there."""
        y, dtype, layer = x.float(), x.dtype, self.config.layers[i]
        if saved is not None:
            amount = self._scalar(layer["skip_scalar"])
            if self.config.skip_weight != "plain":
                amount = amount.sigmoid()
            if self.config.skip_weight == "gate":
                amount = amount * (2 * gate(x0, self.skip_gate.weight))
            y = y + amount * saved.float()
            if self.config.skip_weight == "gate":
                y = y.to(dtype).float()
        lambda_x, lambda_x0 = self._scalar(layer["block_lambda"]), self._scalar(layer["x0_lambda"])
        return (lambda_x * y + lambda_x0 * x0.float()).to(dtype)

    def _value(self, i: int, v: torch.Tensor, u: torch.Tensor, tokens: torch.Tensor):
        """v [B, T, heads, d] with its scalar and value embedding; float32."""
        v, k = v.float(), self.config.layers[i]["value_embedding"]
        rows = None
        if k >= 0:
            rows = F.embedding(tokens, self.value_embeds[k].weight).view_as(v).float()
        if self.config.value_mix == "gate":
            if rows is None:
                return v
            return v + 2 * gate(u, self._value_gate(i))[..., None] * rows
        at = self.config.layers[i]["attention_lambda"]
        v = self._scalar(at) * (rms_norm(v) if self.config.value_norm else v)
        return v if rows is None else v + self._scalar(at + 1) * rows

    def _attention(self, i: int, u: torch.Tensor, residual: torch.Tensor, tokens: torch.Tensor,
                   places: Places, masks: dict) -> torch.Tensor:
        config, layer, dtype = self.config, self.config.layers[i], u.dtype
        heads, split = config.num_attention_heads, (*u.shape[:2], -1, config.head_dim)
        qkv, out = self._qkvo(i)
        q, k, v = (t.view(split) for t in F.linear(u, qkv).chunk(3, -1))
        positions = places.positions[..., None].expand(-1, -1, heads)
        if layer["paired_heads"]:
            positions = 2 * positions + torch.arange(heads, device=u.device) % 2
        frequencies = torch.tensor(config.rotary_frequencies, device=u.device)
        theta = positions[..., None].float() * frequencies
        table = torch.float32 if config.rotary_dtype == "f32" else torch.bfloat16
        neighbours = config.rotary_pairs == "neighbours"
        q, k = (rotate(rms_norm(t), theta, neighbours, table).to(dtype) for t in (q, k))
        if layer["key_offset"]:
            k = offset_keys(k, places.has_before)
        v = self._value(i, v, u, tokens).to(dtype)
        if layer["paired_heads"]:  # the second half of a token's heads as a token of its own
            q, k, v = (t.reshape(len(t), -1, heads // 2, config.head_dim) for t in (q, k, v))
        o = F.scaled_dot_product_attention(
            *(t.transpose(1, 2) for t in (q, k, v)), scale=config.attention_scale,
            attn_mask=masks[layer["paired_heads"], layer["long_window"]])
        o = o.transpose(1, 2).reshape(split)
        weight = self._attention_gate(i)
        if weight is not None:
            o = (o.float() * gate(u, weight)[..., None]).to(dtype)
        return add_product(residual, o.flatten(2), out)

    def _layer(self, i: int, x: torch.Tensor, tokens: torch.Tensor, places: Places, masks: dict):
        if self.config.layers[i]["attention"]:
            u = x if self.config.attention_input == "stream" else rms_norm(x).to(x.dtype)
            x = self._attention(i, u, x, tokens, places, masks)
        if self.config.layers[i]["mlp"]:
            fc, proj = self._mlp(i)
            hidden = F.linear(rms_norm(x).to(x.dtype), fc)
            x = add_product(x, hidden.float().relu().square().to(x.dtype), proj)
        return x

    def _masks(self, places: Places) -> dict[tuple[bool, bool], torch.Tensor]:
        """By paired_heads and long_window, as far as layers need them."""
        needed = {(la["paired_heads"], la["long_window"])
                  for la in self.config.layers if la["attention"]}
        windows = self.config.short_window, self.config.long_window
        return {(paired, long): (places.paired() if paired else places).mask(
            windows[long], self.config.window_block) for paired, long in needed}

    def _last_stream(self, tokens: torch.Tensor, places: Places) -> torch.Tensor:
        masks, outputs = self._masks(places), {}
        x = x0 = self._first_stream(tokens, places)
        for i, layer in enumerate(self.config.layers):
            if layer["attention"] or layer["mlp"]:
                x = self._mix(i, x, x0, outputs.get(layer["skip_from"]))
                x = outputs[i] = self._layer(i, x, tokens, places, masks)
        if self.config.backout_layer < 0:
            return x
        weight = self._scalar(self.config.backout_lambda)
        backed_out = x.float() - weight * outputs[self.config.backout_layer].float()
        return backed_out.to(x.dtype)

    def _logits(self, x: torch.Tensor) -> torch.Tensor:
        """float32, soft cap applied."""
        weight = attrgetter(self.config.head_name)(self)
        u = rms_norm(x).to(x.dtype)
        transposed = self.config.head_layout == "dim_vocab"
        logits = (u @ weight if transposed else F.linear(u, weight)).float()
        cap = self.config.softcap
        if self.config.softcap_kind == "isru":
            return cap * logits * torch.rsqrt(logits.square() + cap**2)
        shifted = logits + self.config.softcap_shift
        return cap * torch.sigmoid(shifted / self.config.softcap_temperature)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        logits_to_keep: int = 0,
        use_cache: bool | None = None,
        return_dict: bool | None = None,
    ):
        """input_ids [B, T]. attention_mask [B, T]: 0 for padding. labels: like input_ids, -100 for
        tokens that do not count; each token is predicted from those before it.

        logits: float32 [B, T, vocab_size], soft cap applied; with logits_to_keep = n only of the
        last n tokens. Ids beyond the tokenizer's are padding of the vocabulary. use_cache changes
        nothing: there is no cache.
        """
        if attention_mask is not None and attention_mask.dim() != 2:
            raise ValueError(f"attention_mask has {attention_mask.dim()} dims: it must be [B, T]")
        places = Places.of(input_ids, attention_mask, self.config.bos_token_id)
        x = self._last_stream(input_ids, places)
        logits = self._logits(x[:, -logits_to_keep:] if logits_to_keep else x)
        loss = None
        if labels is not None:
            if logits_to_keep:
                raise ValueError("labels need the logits of all tokens: leave logits_to_keep out")
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        if return_dict is False:
            return (logits,) if loss is None else (loss, logits)
        return CausalLMOutput(loss=loss, logits=logits)

    def prepare_inputs_for_generation(self, input_ids: torch.Tensor,
                                      attention_mask: torch.Tensor | None = None, **kwargs):
        return {"input_ids": input_ids, "attention_mask": attention_mask, "logits_to_keep": 1}
