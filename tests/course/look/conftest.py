"""The page in a real browser, or a skip that says "not checked"."""

import json
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
# features that the shipped models lack: biases, an untied head, H * D other than E, float32
OWN = {
    "vocab_size": 1536, "hidden_size": 40, "intermediate_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16, "rope_theta": 1e4,
    "max_position_embeddings": 64, "attention_bias": True, "mlp_only_layers": (1,),
    "num_experts": 5, "num_experts_per_tok": 3, "moe_intermediate_size": 24,
}  # fmt: skip


@pytest.fixture(scope="session")
def own_folder(tmp_path_factory):
    """A checkpoint as a learner may have made it; every weight differs from its initial
    value."""
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
    """Fails on serious findings of axe in the open page; options and context are axe's. Without
    axe, the rest of the test counts and this part is reported as not checked."""
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


class Page:
    """The page, opened in a browser."""

    SIZES = {"desktop": (1280, 800), "phone": (390, 844)}

    def __init__(self, browser, folder):
        self.browser, self.address = browser, (folder / "index.html").as_uri()

    def resize(self, size):
        width, height = self.SIZES[size]
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def open(self, view):
        self.resize("desktop")
        self.browser.get("about:blank")
        for kind in ("browser", "performance"):
            self.browser.get_log(kind)  # drop earlier entries
        self.browser.get(f"{self.address}#{view}")
        self.until("document.documentElement.dataset.ready === 'yes'")
        return self.until(
            "TinyLLM.app.run && !TinyLLM.app.writing && panel.children.length > 2"
        )

    def at(self, view):
        """Open a view in the current page, or in a fresh one."""
        if not self.js("return globalThis.TinyLLM?.app?.loaded?.name === 'stories-dense'"):
            return self.open(view)
        self.js("location.hash = TinyLLM.link(arguments[0])", view)
        return self.until(f"panel.dataset.view === '{view}' && !TinyLLM.app.writing")

    def until(self, condition):
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.browser, 60, 0.05).until(lambda _: self.js(f"return {condition}"))
        return self

    def js(self, script, *given):
        return self.browser.execute_script(script, *given)

    def texts(self, selector):
        script = (
            "return [...document.querySelectorAll(arguments[0])].map((each) => each.innerText)"
        )
        return self.js(script, selector)

    def new(self):
        self.press("#new", "New text")
        return self.until("!TinyLLM.app.writing")

    def ask(self, request):
        self.js("request.value = arguments[0]", request)
        self.press("#go", "Ask")
        return self.until("!TinyLLM.app.writing")

    def visit(self, address):
        self.browser.get("about:blank")
        self.browser.get(address)
        self.until("document.documentElement.dataset.ready === 'yes'")
        return self.until("!TinyLLM.app.writing && panel.children.length > 2")

    def press(self, selector, text):
        buttons = f"[...document.querySelectorAll('{selector}')]"
        self.js(f"{buttons}.find((each) => each.textContent === arguments[0]).click()", text)

    def turn(self, knob, value):
        script = """
            const input = document.querySelector(`input[aria-label="${arguments[0]}"]`);
            input.value = arguments[1];
            input.dispatchEvent(new Event("input"));"""
        self.js(script, knob, value)

    def requests(self):
        logged = self.browser.get_log("performance")
        events = [json.loads(each["message"])["message"] for each in logged]
        sent = [each for each in events if each["method"] == "Network.requestWillBeSent"]
        return [each["params"]["request"]["url"] for each in sent]


@pytest.fixture(scope="module")
def opened(browser, page):
    return Page(browser, page)
