"""The page in a real browser, or a skip that says "not checked"."""

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from labkit.look.page import Shown, write
from labkit.model import checkpoint, hub
from solutions.config import Qwen3Config
from solutions.decoder import Qwen3ForCausalLM

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--window-size=1200,1000",
)
# what the shipped models lack: biases, a head of its own, H * D unlike E, float32
OWN = {
    "vocab_size": 1536, "hidden_size": 40, "intermediate_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16, "rope_theta": 1e4,
    "max_position_embeddings": 64, "attention_bias": True, "mlp_only_layers": (1,),
    "num_experts": 5, "num_experts_per_tok": 3, "moe_intermediate_size": 24,
}  # fmt: skip


@pytest.fixture(scope="session")
def own_folder(tmp_path_factory):
    """A checkpoint such as a learner may have made; no weight is at its start."""
    config = Qwen3Config(**OWN)
    model = Qwen3ForCausalLM(config)
    dice = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=dice) + 0.1)
    folder = tmp_path_factory.mktemp("own") / "model"
    checkpoint.save(model, config, folder, hub.SHIPPED["stories-dense"])
    return folder


@pytest.fixture(scope="session")
def page(tmp_path_factory, own_folder):
    folder = tmp_path_factory.mktemp("page")
    write(folder, [*hub.SHIPPED, Shown("own", own_folder)], {"05": "index.html#tokens"})
    return folder


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver", reason="not checked: no selenium")
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (binary and driver):
        pytest.skip("not checked: there is no chromium with its chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(driver)
    with webdriver.Chrome(options=options, service=service) as running:
        running.set_script_timeout(60)
        yield running


@pytest.fixture(scope="session")
def barriers():
    """Fails on what axe finds serious in the page that is open; options and context are axe's.
    Without axe the test has checked all but that, and says so."""
    axe = find_spec("axe_core_python")

    def check(browser, context=None, **options):
        if axe is None:
            pytest.skip("not checked for barriers: no axe-core-python")
        browser.execute_script((Path(axe.origin).parent / "axe.min.js").read_text("utf-8"))
        script = """
            const [context, options, done] = arguments;
            axe.run(context || document, {resultTypes: ["violations"], ...options})
                .then((found) => done(found.violations), (error) => done(String(error)));"""
        violations = browser.execute_async_script(script, context, options)
        assert isinstance(violations, list), violations
        serious = [found for found in violations if found["impact"] in ("serious", "critical")]
        assert not [(e["id"], [n["html"][:99] for n in e["nodes"][:3]]) for e in serious]

    return check
