import oracle
import pytest
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
