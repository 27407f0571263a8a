"""The one table of labs and exercises: names, symbols, points, minutes, what may not be used.

Notebook headings and badges, skeletons, the gradebook's maxima and the command line all
read it. Adding a lab to the course starts with a row here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import PurePath

from labkit.lang import tr

ANY_LAB = (
    *("transformers", "torch.ops", "torch._C"),
    *("torch._refs", "torch._decomp", "torch._prims", "torch._functorch"),
    "matplotlib",  # needs a folder to write to, which grading has not
)


@dataclass(frozen=True)
class Exercise:
    """One graded cell: the learner defines `symbols` (joined, they are its title)."""

    id: str
    symbols: tuple[str, ...]
    points: float
    minutes: int
    core: bool = True

    @property
    def title(self) -> str:
        return ", ".join(self.symbols)

    @property
    def heading(self) -> str:
        """What a report begins with."""
        return tr("Exercise {id}  {title}", id=self.id, title=self.title)

    @property
    def slug(self) -> str:
        """The id as nbgrader and HTML accept it: 1.2 -> 1-2."""
        return self.id.replace(".", "-")

    @property
    def answer_cell(self) -> str:
        return f"ex-{self.slug}"

    @property
    def check_cell(self) -> str:
        return f"check-{self.slug}"

    @property
    def grade_cell(self) -> str:
        """Under this name its points stand in the gradebook."""
        return self.check_cell


@dataclass(frozen=True)
class Question:
    """A written question, graded by hand."""

    id: str
    points: float

    @property
    def answer_cell(self) -> str:
        return f"written-{self.id.replace('.', '-')}"

    @property
    def grade_cell(self) -> str:
        return self.answer_cell


@dataclass(frozen=True)
class Lab:
    number: str
    module: str
    title: str
    exercises: tuple[Exercise, ...] = ()
    questions: tuple[Question, ...] = ()
    banned: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The notebook's and nbgrader's name for the lab: 01_rmsnorm."""
        return f"{self.number}_{self.module}"

    def exercise(self, exercise_id: str) -> Exercise:
        return next(e for e in self.exercises if e.id == exercise_id)

    @property
    def cells(self) -> set[str]:
        """The names of all graded cells of its notebook."""
        marked = {name for e in self.exercises for name in (e.answer_cell, e.check_cell)}
        return marked | {question.answer_cell for question in self.questions}

    @property
    def not_allowed(self) -> tuple[str, ...]:
        return self.banned + ANY_LAB


LABS = (
    Lab(
        "01",
        "rmsnorm",
        "Normalisation: from LayerNorm to RMSNorm",
        exercises=(
            Exercise("1.1", ("layer_norm",), points=4, minutes=10),
            Exercise("1.2", ("RMSNorm",), points=6, minutes=15),
            Exercise("1.3", ("residual",), points=4, minutes=15, core=False),
        ),
        questions=(Question("1.a", 2), Question("1.b", 2), Question("1.c", 2)),
        banned=(
            *("torch.nn.LayerNorm", "torch.nn.RMSNorm", "torch.nn.GroupNorm"),
            *("torch.nn.functional.layer_norm", "torch.nn.functional.rms_norm"),
            *("torch.nn.functional.group_norm", "torch.nn.functional.batch_norm"),
            *("torch.nn.functional.instance_norm", "torch.nn.modules.normalization"),
            *("torch.layer_norm", "torch.native_layer_norm", "torch.rms_norm"),
            *("torch.group_norm", "torch.batch_norm", "torch.instance_norm"),
            *("aten::native_layer_norm", "aten::_fused_rms_norm", "aten::native_group_norm"),
            *("aten::native_batch_norm", "aten::rms_norm", "aten::layer_norm"),
            *("torch.native_batch_norm", "torch._native_batch_norm_legit"),
            *("torch._native_batch_norm_legit_no_training", "torch._batch_norm_impl_index"),
            *("torch.batch_norm_stats", "torch.batch_norm_elemt"),
            *("aten::_native_batch_norm_legit", "aten::_native_batch_norm_legit_no_training"),
            *("aten::_batch_norm_with_update", "aten::_batch_norm_no_update"),
            "aten::_batch_norm_with_update_functional",
        ),
    ),
    Lab(
        "02",
        "rope",
        "Positions: RoPE and its neighbours",
        exercises=(
            Exercise("2.1", ("rope_cos_sin",), points=5, minutes=15),
            Exercise("2.2", ("rotate_half",), points=3, minutes=5),
            Exercise("2.3", ("apply_rotary_pos_emb",), points=5, minutes=10),
            Exercise("2.4", ("sinusoidal_embedding",), points=3, minutes=10, core=False),
            Exercise("2.5", ("alibi_bias",), points=3, minutes=15, core=False),
            Exercise("2.6", ("relative_scores",), points=3, minutes=15, core=False),
            Exercise("2.7", ("yarn_cos_sin",), points=3, minutes=20, core=False),
            Exercise("2.8", ("LearnedPositions",), points=2, minutes=10, core=False),
        ),
        questions=(Question("2.a", 2), Question("2.b", 2), Question("2.c", 2)),
        banned=(
            *("torchtune", "torchao", "xformers", "flash_attn", "rotary_embedding_torch"),
            *("torch.nn.MultiheadAttention", "torch.nn.attention"),
            *("torch.nn.functional.multi_head_attention_forward",),
            *("torch.nn.functional.scaled_dot_product_attention",),
            *("aten::scaled_dot_product_attention", "aten::_native_multi_head_attention"),
        ),
    ),
    Lab(
        "03",
        "gqa",
        "Attention: many queries, few keys",
        exercises=(
            Exercise("3.1", ("causal_mask",), points=3, minutes=5),
            Exercise("3.2", ("scaled_dot_product_attention",), points=5, minutes=15),
            Exercise("3.3", ("repeat_kv",), points=3, minutes=5),
            Exercise("3.4", ("Qwen3Attention",), points=8, minutes=30),
            Exercise("3.5", ("MultiHeadLatentAttention",), points=5, minutes=40, core=False),
            Exercise("3.6", ("masked_softmax",), points=3, minutes=15, core=False),
        ),
        questions=(Question("3.a", 2), Question("3.b", 2), Question("3.c", 2)),
        banned=(
            *("torch.nn.functional.scaled_dot_product_attention", "torch.nn.attention"),
            *("torch.nn.functional.multi_head_attention_forward", "torch.nn.Transformer"),
            *("torch.nn.MultiheadAttention", "torch.nn.modules.activation.MultiheadAttention"),
            *("torch.nn.TransformerEncoderLayer", "torch.nn.TransformerDecoderLayer"),
            *("torch.nn.TransformerEncoder", "torch.nn.TransformerDecoder"),
            *("torch.nn.modules.transformer", "torch.scaled_dot_product_attention"),
            *("torch._scaled_dot_product_attention_math",),
            *("torch._native_multi_head_attention", "torch._transformer_encoder_layer_fwd"),
            *("aten::scaled_dot_product_attention", "aten::_scaled_dot_product_attention_math"),
            *("aten::_scaled_dot_product_flash_attention_for_cpu",),
            *("aten::_scaled_dot_product_fused_attention_overrideable",),
            *("aten::_scaled_dot_product_efficient_attention",),
            *("aten::_scaled_dot_product_flash_attention", "aten::_flash_attention_forward"),
            *("aten::_scaled_dot_product_cudnn_attention", "aten::_cudnn_attention_forward"),
            *("aten::_efficient_attention_forward", "aten::_triton_multi_head_attention"),
            *("aten::_triton_scaled_dot_attention",),
            *("aten::_native_multi_head_attention", "aten::_transformer_encoder_layer_fwd"),
        ),
    ),
    Lab(
        "04",
        "swiglu",
        "The feed-forward layer: SwiGLU",
        exercises=(
            Exercise("4.1", ("silu",), points=3, minutes=5),
            Exercise("4.2", ("Qwen3MLP",), points=5, minutes=10),
            Exercise("4.3", ("FeedForward",), points=4, minutes=20, core=False),
        ),
        questions=(Question("4.a", 2), Question("4.b", 2), Question("4.c", 2)),
        banned=(
            *("torch.nn.SiLU", "torch.nn.GELU", "torch.nn.GLU"),
            *("torch.nn.functional.silu", "torch.nn.functional.gelu"),
            *("torch.nn.functional.glu", "torch.nn.modules.activation"),
            *("aten::silu", "aten::silu_", "aten::gelu", "aten::gelu_", "aten::glu"),
        ),
    ),
    Lab(
        "05",
        "moe",
        "Mixture of experts",
        exercises=(
            Exercise("5.1", ("route",), points=5, minutes=15),
            Exercise("5.2", ("Qwen3MoeSparseMoeBlock",), points=7, minutes=25),
            Exercise("5.3", ("load_balancing_loss",), points=5, minutes=15),
            Exercise("5.4", ("uses_experts",), points=2, minutes=5),
        ),
        questions=(Question("5.a", 2), Question("5.b", 2), Question("5.c", 2)),
        banned=(
            *("torch.nn.functional.grouped_mm", "torch.nn.functional.scaled_grouped_mm"),
            *("torch._grouped_mm", "torch._scaled_grouped_mm"),
            *("aten::_grouped_mm", "aten::_scaled_grouped_mm", "aten::_scaled_grouped_mm_v2"),
        ),
    ),
    Lab(
        "06",
        "decoder",
        "The decoder, assembled",
        exercises=(
            Exercise("6.1", ("Qwen3DecoderLayer",), points=5, minutes=15),
            Exercise("6.2", ("Qwen3Model",), points=6, minutes=30),
            Exercise("6.3", ("Qwen3ForCausalLM",), points=5, minutes=15),
            Exercise("6.4", ("count_parameters",), points=4, minutes=25),
        ),
        questions=(Question("6.a", 2), Question("6.b", 3), Question("6.c", 2)),
        banned=(
            *("torch.nn.Transformer", "torch.nn.modules.transformer"),
            *("torch.nn.TransformerDecoderLayer", "torch.nn.TransformerEncoderLayer"),
            *("torch.nn.TransformerDecoder", "torch.nn.TransformerEncoder"),
        ),
    ),
    Lab(
        "07",
        "generation",
        "Generation: the cache and the dice",
        exercises=(
            Exercise("7.1", ("KVCache",), points=5, minutes=20),
            Exercise("7.2", ("sample_next_token",), points=6, minutes=20),
            Exercise("7.3", ("generate",), points=6, minutes=25),
        ),
        questions=(Question("7.a", 2), Question("7.b", 2), Question("7.c", 2)),
        banned=("labkit.model", "vllm"),
    ),
    Lab(
        "08",
        "training",
        "Training from nothing",
        exercises=(
            Exercise("8.1", ("causal_lm_loss",), points=5, minutes=15),
            Exercise("8.2", ("learning_rate",), points=3, minutes=10),
            Exercise("8.3", ("train_step",), points=5, minutes=25),
            Exercise("8.4", ("train_step_in_parts",), points=3, minutes=30, core=False),
            Exercise("8.5", ("adamw_step",), points=4, minutes=20, core=False),
        ),
        questions=(Question("8.a", 2), Question("8.b", 2), Question("8.c", 2)),
        banned=(
            *("torch.nn.functional.cross_entropy", "torch.nn.functional.nll_loss"),
            *("torch.nn.CrossEntropyLoss", "torch.nn.NLLLoss", "torch.nn.NLLLoss2d"),
            *("torch.nn.functional.linear_cross_entropy", "torch.nn.LinearCrossEntropyLoss"),
            *("torch.nn.AdaptiveLogSoftmaxWithLoss", "torch.nn.modules.loss"),
            *("torch.nn.modules.adaptive", "torch.nll_loss", "torch.cross_entropy_loss"),
            *("torch.optim.lr_scheduler", "aten::cross_entropy_loss", "aten::nll_loss"),
            *("torch.optim.AdamW", "torch.optim.Adam", "torch.optim.adamw", "torch.optim.adam"),
            *("torch._fused_adamw_", "torch._fused_adam_", "aten::_fused_adamw_"),
            *("aten::nll_loss_nd", "aten::nll_loss_forward", "aten::nll_loss2d"),
            "aten::nll_loss2d_forward",
        ),
    ),
)


# Notebooks in which nothing is graded: an exercise there is practice, and has no points.
UNGRADED = (
    Lab(
        "00",
        "tour",
        "The tour: a model that talks",
        exercises=(Exercise("0.1", ("next_token",), points=0, minutes=3),),
    ),
    Lab("09", "qwen3", "Real Qwen3"),
)

NOTEBOOKS = tuple(sorted(LABS + UNGRADED, key=lambda each: each.number))


class UnknownName(LookupError):
    """A lab or exercise that does not exist, or not here; the message says what is near."""


def find_lab(name: str, labs: tuple[Lab, ...] = LABS) -> Lab:
    """The lab called `name`: '01_rmsnorm', 'rmsnorm', '01' or '1'."""
    known = tr(", ").join(lab.name for lab in labs)
    for lab in NOTEBOOKS:
        if name in (lab.name, lab.module, lab.number, lab.number.lstrip("0")):
            if lab in labs:
                return lab
            raise UnknownName(
                tr(
                    "nothing in {name} is graded; the labs that are: {known}",
                    name=lab.name,
                    known=known,
                )
            )
        if any(name == e.id or name in e.symbols for e in lab.exercises):
            raise UnknownName(
                tr(
                    "{name} is an exercise of the lab {module}; say {module}",
                    name=name,
                    module=lab.module,
                )
            )
    names = [each for lab in labs for each in (lab.module, lab.name)]
    near = get_close_matches(PurePath(name).stem.lower(), names, 1)
    meant = tr("; is it {near}?", near=near[0]) if near else ""
    raise UnknownName(
        tr(
            "there is no lab {name!r}; the labs are {known}{meant}",
            name=name,
            known=known,
            meant=meant,
        )
    )


def find_question(name: str) -> tuple[Lab, Question] | None:
    """The written question with this id ('1.a'), and its lab."""
    pairs = ((lab, question) for lab in LABS for question in lab.questions)
    return next((pair for pair in pairs if pair[1].id == name), None)


def find_exercise(exercise_id: str) -> tuple[Lab, Exercise]:
    """The exercise with this id ('1.2') or symbol ('RMSNorm'), and its lab."""
    symbols = {}
    for lab in NOTEBOOKS:
        for exercise in lab.exercises:
            if exercise_id == exercise.id or exercise_id in exercise.symbols:
                return lab, exercise
            symbols |= {symbol.lower(): exercise for symbol in exercise.symbols}
    number = re.match(r"\d*", exercise_id)[0].lstrip("0") or exercise_id
    labs = (lab for lab in NOTEBOOKS if number in (lab.number.lstrip("0"), lab.module))
    near = [each for lab in labs for each in lab.exercises]
    near += [symbols[each] for each in get_close_matches(exercise_id.lower(), symbols, 3)]
    known = tr(", ").join(f"{e.id} {e.title}" for e in dict.fromkeys(near))
    known = tr("is it one of {known}? ", known=known) if known else ""
    raise UnknownName(
        tr(
            "there is no exercise {exercise_id!r}; {known}`tinyllm status` lists all",
            exercise_id=exercise_id,
            known=known,
        )
    )
