import oracle
import pytest
import small
import torch


def both(name, folder, dtype=torch.float32):
    """Return our model, and transformers' model loaded from its files."""
    model = oracle.ours(oracle.CONFIGS[name]).to(dtype)
    oracle.save(model, folder)
    return model, oracle.load_hf(folder, dtype)


@pytest.fixture(scope="session", params=oracle.CONFIGS)
def pair(request, tmp_path_factory):
    return both(request.param, tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="session", params=oracle.CONFIGS)
def pair_bf16(request, tmp_path_factory):
    return both(request.param, tmp_path_factory.mktemp("pair_bf16"), torch.bfloat16)


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory):
    """A small real tokenizer with Qwen's special tokens, and Qwen3's chat template."""
    folder = tmp_path_factory.mktemp("tokenizer")
    small.write_tokenizer(folder)
    return folder


@pytest.fixture(scope="session")
def chat_folder(tmp_path_factory, tokenizer_folder):
    """A whole checkpoint folder: a random tiny model and the tokenizer."""
    folder = tmp_path_factory.mktemp("chat") / "chat_folder"
    return small.write_chat_folder(folder, tokenizer_folder)
