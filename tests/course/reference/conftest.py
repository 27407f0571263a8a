import oracle
import pytest
import small
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session", params=oracle.CONFIGS)
def pair(request, tmp_path_factory):
    """(our model, the same model in transformers), through the disk, float32."""
    folder = tmp_path_factory.mktemp("pair")
    model = oracle.ours(oracle.CONFIGS[request.param])
    oracle.save(model, folder)
    return model, oracle.load_there(folder)


@pytest.fixture(scope="session", params=oracle.CONFIGS)
def pair_bf16(request, tmp_path_factory):
    """The same in bfloat16."""
    folder = tmp_path_factory.mktemp("pair_bf16")
    model = oracle.ours(oracle.CONFIGS[request.param]).to(torch.bfloat16)
    oracle.save(model, folder)
    return model, oracle.load_there(folder, torch.bfloat16)


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory):
    """A small real tokenizer with Qwen's special tokens, and Qwen3's chat template."""
    folder = tmp_path_factory.mktemp("tokenizer")
    small.write_tokenizer(folder)
    return folder


@pytest.fixture(scope="session")
def chat_folder(tmp_path_factory, tokenizer_folder):
    """A whole checkpoint folder: a random tiny model and the tokenizer."""
    return small.write_chat_folder(
        tmp_path_factory.mktemp("chat") / "chat_folder", tokenizer_folder
    )
