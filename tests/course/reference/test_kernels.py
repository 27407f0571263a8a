"""The kernels compared with torch, their counts with formulas; compiled if there is a GPU."""

import inspect
import json
import subprocess
import sys

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close
from transformers.models.qwen3_moe import Qwen3MoeConfig, modeling_qwen3_moe

from labkit.course.paths import ROOT
from labkit.course.syllabus import find_lab
from labkit.sandbox.inside.kernels import make_strict
from labkit.sandbox.inside.kernels.profile import OutsideMemory, numbered_from, profiled
from solutions import kernels, serving
from solutions.triton_tools import tl, triton

pytestmark = pytest.mark.skipif(
    not find_lab("kernels").is_checkable, reason="not checked: triton is not installed"
)
make_strict()


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_a_norm_moves_each_number_once():
    x, residual, weight = randn(3, 5, 24), randn(3, 5, 24, seed=1), randn(24, seed=2)
    with profiled() as seen:
        out, total = kernels.rms_norm(x, weight, residual=residual)
    assert_close(out, F.rms_norm(x + residual, (24,), weight, 1e-6))
    assert_close(total, x + residual)
    assert seen.bytes_stored == 2 * x.nbytes
    assert seen.bytes_loaded == 2 * x.nbytes + 15 * weight.nbytes
    assert seen.programs == 15 and not seen.races


def test_swiglu_and_its_gradients_are_those_of_autograd():
    both = randn(4, 42).requires_grad_()
    gate, up = both.chunk(2, dim=-1)
    (right,) = torch.autograd.grad((F.silu(gate) * up).sin().sum(), both)
    with profiled() as seen:
        (grad,) = torch.autograd.grad(kernels.swiglu(gate, up, 16).sin().sum(), both)
    assert_close(grad, right)
    size = 4 * 21 * 4
    assert (seen.bytes_loaded, seen.bytes_stored) == (5 * size, 3 * size) and not seen.races


def test_the_loss_takes_the_place_of_the_logits():
    logits, labels = 5 * randn(7, 53), torch.tensor([3, 52, -100, 0, 7, 7, -100])
    leaf = logits.clone().requires_grad_()
    right = F.cross_entropy(leaf, labels)
    right.backward()
    with profiled() as seen:
        loss, gradient = kernels.cross_entropy_(logits, labels, block_size=16)
    assert_close(loss, right.detach())
    assert_close(gradient, leaf.grad)
    assert gradient.data_ptr() == logits.data_ptr() and not seen.races
    assert seen.of(logits) == (5 * (2 * 53 + 1) * 4, 7 * 53 * 4)


@pytest.mark.parametrize("block", [4, 16])
@pytest.mark.parametrize("causal", [True, False])
def test_attention_loads_the_blocks_that_may_be_seen(causal, block):
    new, total = 9, 21
    query, key, value = randn(2, 4, new, 12), randn(2, 2, total, 12), randn(2, 2, total, 12)
    with profiled() as seen:
        out = kernels.flash_attention(query, key, value, causal, block_size=block)
    assert_close(out, serving.tiled_attention(query, key, value, is_causal=causal))
    ends = [min(total, total - new + start + block) for start in range(0, new, block)]
    rows = sum(min(total, -(-end // block) * block) if causal else total for end in ends)
    assert seen.of(key)[0] == 2 * 4 * rows * 12 * 4 and not seen.races


@pytest.mark.parametrize("bits", [8, 4])
def test_a_quantized_product_is_that_of_the_expanded_matrix(bits):
    whole, scale = serving.quantize(randn(21, 32), bits, 8)
    x, packed = randn(32, seed=1), whole if bits == 8 else serving.pack_int4(whole)
    with profiled() as seen:
        out = kernels.quantized_matvec(x, packed, scale, bits, 16)
    assert_close(out, serving.dequantize(whole, scale) @ x, rtol=1e-4, atol=1e-5)
    assert seen.of(packed)[0] == packed.nbytes


def test_an_idle_expert_loads_nothing():
    x, weight = randn(9, 10), randn(5, 7, 10, seed=1)
    experts = torch.tensor(
        [[0, 3], [3, 0], [0, 4], [3, 0], [0, 3], [0, 3], [4, 3], [3, 0], [0, 3]]
    )
    with profiled() as seen:
        out = kernels.moe_linear(x, weight, experts, block_size=4)
    assert_close(out, torch.einsum("nkoi,ni->nko", weight[experts], x))
    assert seen.of(weight)[0] == (2 + 2 + 1) * 7 * 10 * 4  # blocks of the experts 0, 3 and 4
    assert seen.of(x)[0] == 18 * 10 * 4 * 2 and not seen.races  # two blocks of outputs


@pytest.mark.parametrize("causal", [True, False])
def test_the_gradients_of_attention_are_those_of_autograd(causal):
    new, total = 5, 7
    query, key, value = randn(2, 4, new, 6), randn(2, 2, total, 6), randn(2, 2, total, 6)
    leaves = [x.clone().requires_grad_() for x in (query, key, value)]
    mask = torch.ones(new, total, dtype=torch.bool).tril(total - new if causal else total)
    out = F.scaled_dot_product_attention(*leaves, attn_mask=mask, enable_gqa=True)
    grad = randn(*out.shape, seed=3)
    with profiled() as seen:
        found = kernels.flash_attention_backward(
            grad, query, key, value, out.detach(), causal, block_size=4
        )
    for answer, right in zip(found, torch.autograd.grad(out, leaves, grad), strict=True):
        assert_close(answer, right, rtol=1e-4, atol=1e-5)
    kept = 2 * (2 * 4 * new) * 4  # bytes of log_sum and delta
    assert seen.bytes_stored == kept + query.nbytes + key.nbytes + value.nbytes
    assert not seen.races


def test_rows_counted_in_32_bits_leave_the_memory():
    cell = inspect.getsource(kernels.cross_entropy_kernel.fn)
    assert "tl.program_id(0).to(tl.int64)" in cell
    names = dict(vars(kernels))
    exec_kernel = cell.replace("tl.program_id(0).to(tl.int64)", "tl.program_id(0)")
    exec(compile(exec_kernel, "int32", "exec"), names)
    logits, labels, loss = randn(3, 12), torch.tensor([1, 11, 0]), torch.zeros(3)
    arguments = (logits, labels, loss, 12, 12, 3, -100)
    with numbered_from(2**31 // 12 + 1):
        kernels.cross_entropy_kernel[(3,)](*arguments, BLOCK=8)
        assert_close(loss.sum(), F.cross_entropy(randn(3, 12), labels))
        with pytest.raises((OutsideMemory, AssertionError)):
            names["cross_entropy_kernel"][(3,)](*arguments, BLOCK=8)


def test_kernels_give_the_numbers_of_qwen3s_own_modules():
    config = Qwen3MoeConfig(
        hidden_size=12, num_attention_heads=4, num_key_value_heads=2, head_dim=6, num_experts=4,
        num_experts_per_tok=2, moe_intermediate_size=10, norm_topk_prob=True, hidden_act="silu",
    )  # fmt: skip
    x, residual = randn(1, 5, 12), randn(1, 5, 12, seed=1)
    norm = modeling_qwen3_moe.Qwen3MoeRMSNorm(12, eps=1e-4)
    norm.weight.data = randn(12, seed=2)
    normed, total = kernels.rms_norm(x, norm.weight.data, 1e-4, residual)
    assert_close(normed, norm(x + residual).detach())
    assert_close(total, x + residual)
    mlp = modeling_qwen3_moe.Qwen3MoeMLP(config, intermediate_size=10)
    with torch.no_grad():
        out = mlp.down_proj(kernels.swiglu(mlp.gate_proj(x), mlp.up_proj(x), 8))
        assert_close(out, mlp(x))
    query, key, value = randn(2, 4, 5, 6), randn(2, 2, 5, 6), randn(2, 2, 5, 6)
    layer = modeling_qwen3_moe.Qwen3MoeAttention(config, layer_idx=0)
    mask = torch.full((5, 5), -torch.inf).triu(1)
    right = modeling_qwen3_moe.eager_attention_forward(layer, query, key, value, mask, 0.3)[0]
    found = kernels.flash_attention(query, key, value, scale=0.3, block_size=4)
    assert_close(found.transpose(1, 2), right)


@triton.jit
def sums_kernel(x_ptr, out_ptr, size, MASKED: tl.constexpr):
    lane = tl.arange(0, 8)
    if MASKED:
        x = tl.load(x_ptr + tl.program_id(0) * size + lane, mask=lane < size)
    else:
        x = tl.load(x_ptr + tl.program_id(0) * size + lane)
    tl.store(out_ptr + tl.program_id(0) // 2, tl.sum(x, axis=0))


def test_the_interpreter_is_strict():
    x, out = torch.ones(2, 6), torch.zeros(1)
    with pytest.raises(OutsideMemory, match=r"x_ptr\[12\], but its places are 0 to 11"):
        sums_kernel[(2,)](x, out, 6, MASKED=False)
    with profiled() as seen:
        sums_kernel[(2,)](x, out, 6, MASKED=True)
    assert out.isnan()  # undefined lanes
    assert seen.races == ["program (1,) stores out_ptr[0], which another program has stored"]


def test_numbers_are_rounded_to_bfloat16_as_a_gpu_does():
    x, weight = 3 * randn(4, 16), torch.ones(16, dtype=torch.bfloat16)
    out = kernels.rms_norm(x.bfloat16(), weight)
    exact = F.rms_norm(x.bfloat16().double(), (16,), None, 1e-6)
    assert_close(out, exact.bfloat16(), rtol=0, atol=0)


def test_the_rest_of_the_course_needs_no_triton():
    program = (
        "import sys; sys.modules['triton'] = None\n"
        "import solutions.kernels as k, torch\n"
        "from labkit.course.syllabus import find_lab\n"
        "x, picked = torch.ones(1, 1, 2, 4), torch.zeros(2, 1, dtype=torch.long)\n"
        "for run in (lambda: k.rms_norm(x, x[0, 0, 0]),\n"
        "            lambda: k.moe_linear(x[0, 0], torch.ones(2, 3, 4), picked),\n"
        "            lambda: k.flash_attention_backward(x, x, x, x, x)):\n"
        "    try: run()\n"
        "    except ModuleNotFoundError as error: print(error)\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.count("Not run: a kernel needs Triton") == 3, done.stderr


GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="not checked: there is no GPU")


@pytest.mark.parametrize("options", [["--tiny"], pytest.param([], marks=GPU)])
def test_the_benchmark_has_every_kernel_and_its_numbers_are_torchs(options, tmp_path):
    """In its own process, as Triton is interpreted in this one."""
    command = [sys.executable, ROOT / "benchmarks" / "kernels.py", tmp_path / "table.json"]
    subprocess.run([*command, *options], check=True, timeout=600)
    rows = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert len(rows) == 8
    for row in rows:
        assert row["distance"] < 0.01, row  # relative to the largest number, in bfloat16
