"""The numbers that fix a Qwen3 model: given code, read it once.

`Qwen3Config` reads and writes the `config.json` beside every published Qwen3 checkpoint and
has the same field names. `PRESETS` holds the published family.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ARCHITECTURES = {"qwen3": "Qwen3ForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM"}

# What this course builds in one way only; any other value in a config.json is refused.
FIXED = {
    "hidden_act": ("silu",),
    "use_sliding_window": (False, None),
    "attention_dropout": (0, None),
    "rope_scaling": (None,),
    "quantization_config": (None,),
}

MAY_BE_0 = ("num_experts", "rms_norm_eps", "initializer_range", "router_aux_loss_coef")


@dataclass(frozen=True)
class Qwen3Config:
    """The shape of one Qwen3 model, dense (num_experts 0) or mixture of experts.

    The letters are those of the shape comments in every module. head_dim is a field of its
    own: H * D need not be E. Impossible numbers raise ValueError and name the field.

    Source: https://huggingface.co/Qwen/Qwen3-0.6B/blob/main/config.json
    """

    vocab_size: int  # V
    hidden_size: int  # E
    intermediate_size: int  # I, of a dense feed-forward layer
    num_hidden_layers: int
    num_attention_heads: int  # H
    num_key_value_heads: int  # K
    head_dim: int  # D
    rope_theta: float = 1e6
    max_position_embeddings: int = 32768
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    initializer_range: float = 0.02
    num_experts: int = 0  # X
    num_experts_per_tok: int = 8  # k
    moe_intermediate_size: int = 768  # I, of one expert
    norm_topk_prob: bool = False
    decoder_sparse_step: int = 1
    mlp_only_layers: tuple[int, ...] = ()
    router_aux_loss_coef: float = 0.001

    def __post_init__(self):
        object.__setattr__(self, "mlp_only_layers", tuple(self.mlp_only_layers))
        for field in dataclasses.fields(self):
            _check_value(field, getattr(self, field.name))
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads {self.num_attention_heads} is no multiple of "
                f"num_key_value_heads {self.num_key_value_heads}"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}; rotary positions need an even one")
        if self.num_experts and not 1 <= self.num_experts_per_tok <= self.num_experts:
            raise ValueError(
                f"num_experts_per_tok is {self.num_experts_per_tok}; it must lie between 1 "
                f"and num_experts {self.num_experts}"
            )

    @property
    def model_type(self) -> str:
        return "qwen3_moe" if self.num_experts else "qwen3"

    @classmethod
    def from_dict(cls, values: Mapping) -> "Qwen3Config":
        """The config in a parsed config.json, old form or new.

        rope_theta stands at the top or, since transformers 5, within rope_parameters;
        num_experts is also called num_local_experts. Fields we do not need are skipped.

        Errors: another architecture, a missing field, an unsupported setting: ValueError
        """
        _refuse_other_models(values)
        values = {**values, **_rope_theta(values)}
        if values["model_type"] == "qwen3_moe":
            values["num_experts"] = values.get("num_experts", values.get("num_local_experts"))
        else:
            values["num_experts"] = 0
        values["mlp_only_layers"] = values.get("mlp_only_layers") or ()
        missing = [
            name
            for name in (*_sizes(), "rope_theta", "num_experts")
            if values.get(name) is None
        ]
        if missing:
            raise ValueError(f"the config lacks {', '.join(missing)}")
        known = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: values[name] for name in known if values.get(name) is not None})

    @classmethod
    def from_file(cls, path: str | Path) -> "Qwen3Config":
        """The config in a config.json, or in the folder that holds one."""
        path = Path(path)
        path = path / "config.json" if path.is_dir() else path
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is not valid JSON: {error}") from error
        if not isinstance(values, dict):
            raise ValueError(f"{path} holds a JSON {type(values).__name__}, not an object")
        try:
            return cls.from_dict(values)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def to_dict(self) -> dict:
        """What goes into config.json: `transformers` and `from_dict` both read it."""
        values = dataclasses.asdict(self)
        values["mlp_only_layers"] = list(self.mlp_only_layers)
        if self.num_experts == 0:
            for name in _moe_fields():
                del values[name]
        architecture = ARCHITECTURES[self.model_type]
        return {
            "architectures": [architecture],
            "model_type": self.model_type,
            "hidden_act": "silu",
            **values,
        }


def _check_value(field: dataclasses.Field, value) -> None:
    """Numbers are positive, whole where the field says int; switches are true or false."""
    accepted = {int: (int,), float: (int, float), bool: (bool,)}.get(field.type)
    if accepted is None:
        return
    if type(value) not in accepted:
        raise ValueError(f"{field.name} is {value!r}; expected type {field.type.__name__}")
    if value < 0 or (value == 0 and field.type is not bool and field.name not in MAY_BE_0):
        raise ValueError(f"{field.name} is {value}; it must be positive")


def _sizes() -> list[str]:
    """The fields without a default: every config must state them."""
    fields = dataclasses.fields(Qwen3Config)
    return [field.name for field in fields if field.default is dataclasses.MISSING]


def _moe_fields() -> list[str]:
    names = [field.name for field in dataclasses.fields(Qwen3Config)]
    return names[names.index("num_experts") :]


def _refuse_other_models(values: Mapping) -> None:
    model_type = values.get("model_type")
    if model_type not in ARCHITECTURES:
        known = " or ".join(ARCHITECTURES)
        raise ValueError(f"model_type is {model_type!r}; this course builds {known}")
    for architecture in values.get("architectures") or ():
        if architecture != ARCHITECTURES[model_type]:
            raise ValueError(
                f"architectures names {architecture!r}; expected {ARCHITECTURES[model_type]!r}"
            )
    for name, accepted in FIXED.items():
        if values.get(name, accepted[0]) not in accepted:
            raise ValueError(
                f"{name} is {values[name]!r}; only {accepted[0]!r} is built in this course"
            )


def _rope_theta(values: Mapping) -> dict:
    """rope_theta out of transformers 5's rope_parameters, {} where there are none."""
    rope = values.get("rope_parameters") or {}
    if rope.get("rope_type", "default") != "default":
        raise ValueError(f"rope_type is {rope['rope_type']!r}; only 'default' is built in")
    return {"rope_theta": rope["rope_theta"]} if "rope_theta" in rope else {}


@dataclass(frozen=True)
class MLAConfig:
    """The shape of one multi-head latent attention layer, in DeepSeek's field names.

    Source: https://huggingface.co/deepseek-ai/DeepSeek-V3/blob/main/config.json
    """

    hidden_size: int  # E
    num_attention_heads: int  # H
    q_lora_rank: int  # size of the query latent
    kv_lora_rank: int  # size of the latent that keys and values share
    qk_nope_head_dim: int  # part of a head that carries no position
    qk_rope_head_dim: int  # part of a head that is rotated
    v_head_dim: int


@dataclass(frozen=True)
class Qwen3NextConfig:
    """The shape of one hybrid model, in the field names of Qwen3-Next; lab 12 builds it.

    The mixers of the layers are named by layer_types, "linear_attention", "full_attention" or
    "sliding_attention"; without names every full_attention_interval-th layer has full
    attention, and the others carry a state.

    Source: https://huggingface.co/Qwen/Qwen3-Next-80B-A3B-Instruct/blob/main/config.json
    """

    vocab_size: int  # V
    hidden_size: int  # E
    intermediate_size: int  # I
    num_hidden_layers: int
    num_attention_heads: int  # H
    num_key_value_heads: int  # K
    head_dim: int  # D
    linear_num_key_heads: int  # of the layers with a state
    linear_num_value_heads: int  # a multiple of linear_num_key_heads
    linear_key_head_dim: int
    linear_value_head_dim: int
    linear_conv_kernel_dim: int = 4
    partial_rotary_factor: float = 0.25  # share of a head that is rotated
    rope_theta: float = 1e7
    full_attention_interval: int = 4
    layer_types: tuple[str, ...] = ()
    sliding_window: int = 64  # tokens, the newest included
    rms_norm_eps: float = 1e-6
    initializer_range: float = 0.02
    max_position_embeddings: int = 262144
    num_experts: int = 0  # X; with 0 every feed-forward layer is dense
    num_experts_per_tok: int = 10  # k
    moe_intermediate_size: int = 512  # I, of one expert
    shared_expert_intermediate_size: int = 512  # I, of the expert that serves every token
    norm_topk_prob: bool = True
    decoder_sparse_step: int = 1
    mlp_only_layers: tuple[int, ...] = ()

    def __post_init__(self):
        if not self.layer_types:
            every = self.full_attention_interval
            kinds = ("linear_attention", "full_attention")
            is_full = [(i + 1) % every == 0 for i in range(self.num_hidden_layers)]
            object.__setattr__(self, "layer_types", tuple(kinds[full] for full in is_full))
        if len(self.layer_types) != self.num_hidden_layers:
            raise ValueError(
                f"layer_types names {len(self.layer_types)} layers; num_hidden_layers is "
                f"{self.num_hidden_layers}"
            )

    @property
    def rotary_dim(self) -> int:
        """How many features of a head are rotated; the others carry no position."""
        return int(self.head_dim * self.partial_rotary_factor)


def _published(**values) -> Qwen3Config:
    """What the whole family has in common, and what one model adds to it."""
    common = {"vocab_size": 151936, "head_dim": 128, "max_position_embeddings": 40960}
    return Qwen3Config(**common, **values)


def _published_moe(**values) -> Qwen3Config:
    experts = {"num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": True}
    return _published(num_key_value_heads=4, **experts, **values)


PRESETS = {
    "Qwen3-0.6B": _published(
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        tie_word_embeddings=True,
    ),
    "Qwen3-1.7B": _published(
        hidden_size=2048,
        intermediate_size=6144,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        tie_word_embeddings=True,
    ),
    "Qwen3-4B": _published(
        hidden_size=2560,
        intermediate_size=9728,
        num_hidden_layers=36,
        num_attention_heads=32,
        num_key_value_heads=8,
        tie_word_embeddings=True,
    ),
    "Qwen3-8B": _published(
        hidden_size=4096,
        intermediate_size=12288,
        num_hidden_layers=36,
        num_attention_heads=32,
        num_key_value_heads=8,
    ),
    "Qwen3-14B": _published(
        hidden_size=5120,
        intermediate_size=17408,
        num_hidden_layers=40,
        num_attention_heads=40,
        num_key_value_heads=8,
    ),
    "Qwen3-32B": _published(
        hidden_size=5120,
        intermediate_size=25600,
        num_hidden_layers=64,
        num_attention_heads=64,
        num_key_value_heads=8,
    ),
    "Qwen3-30B-A3B": _published_moe(
        hidden_size=2048,
        intermediate_size=6144,
        num_hidden_layers=48,
        num_attention_heads=32,
        moe_intermediate_size=768,
    ),
    "Qwen3-235B-A22B": _published_moe(
        hidden_size=4096,
        intermediate_size=12288,
        num_hidden_layers=94,
        num_attention_heads=64,
        moe_intermediate_size=1536,
    ),
}
