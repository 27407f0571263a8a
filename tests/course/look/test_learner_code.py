"""The page beside the learner's own code; the command; the cell of a notebook."""

from types import SimpleNamespace
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from typer.testing import CliRunner

from labkit.cli import app
from labkit.learner.models import Author
from labkit.look import learner_code, notebook
from labkit.look.page import Shown, write
from labkit.model.weights import CheckpointError
from solutions.decoder import Qwen3ForCausalLM


class Off(Qwen3ForCausalLM):
    """A decoder layer that is wrong in layer 2."""

    def __init__(self, config):
        super().__init__(config)
        self.model.layers[2].register_forward_hook(lambda _m, _i, out: (1.01 * out[0], out[1]))


class Unwritten(Qwen3ForCausalLM):
    def forward(self, *_, **__):
        raise NotImplementedError("Exercise 6.3: Qwen3ForCausalLM")


def code(model_class):
    from solutions.config import Qwen3Config

    return SimpleNamespace(Qwen3Config=Qwen3Config, Qwen3ForCausalLM=model_class)


SENTENCES = {
    Qwen3ForCausalLM: "✓ Your code and this page agree to 1e-",
    Off: "≠ Your code and this page differ from layer 2 on (layers count from 0)",
    Unwritten: "≠ Your code does not run yet: Exercise 6.3: Qwen3ForCausalLM.",
}


def test_the_page_says_where_your_code_differs(browser, tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(learner_code.models, "author", lambda: (Author.LEARNER, []))
    for made in SENTENCES:
        monkeypatch.setattr(learner_code, "_code", lambda whose, made=made: code(made))
        found = learner_code.compute("stories-dense")
        shown.append(Shown(made.__name__, found.folder, found.computed))
    browser.get(write(tmp_path, shown).as_uri())
    script = """
        const [name, done] = arguments;
        TinyLLM.load(name).then((loaded) => {
            const box = document.createElement("p");
            return TinyLLM.compare(loaded, box).then(() => done(box.textContent));
        });"""
    for made, begins in SENTENCES.items():
        sentence = browser.execute_async_script(script, made.__name__)
        assert sentence.startswith(begins)
        assert ("Up to layer 1 they agree" in sentence) == (made is Off)


def test_the_code_that_is_compared_is_the_learners(monkeypatch):
    assert learner_code.compute("stories-dense").computed["whose"] == "course"
    monkeypatch.setattr(learner_code.models, "written", lambda lab: lab.exercises)
    monkeypatch.setattr(learner_code.models, "complete", lambda: 1 / 0)
    computed = learner_code.compute("stories-dense").computed
    assert computed["whose"] == "mixed" and computed["labs"].startswith("01, 02, 03")
    assert computed["problem"].startswith("ZeroDivisionError")


def test_a_page_needs_a_model(tmp_path):
    with pytest.raises(ValueError, match="models is empty"):
        write(tmp_path, [])
    with pytest.raises(CheckpointError, match="there is no model 'storys'"):
        write(tmp_path, ["storys"])
    assert not any(tmp_path.iterdir())


def test_the_command_writes_the_page_and_opens_it(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    arguments = ["look", "stories-moe", "--view", "experts", "--to", str(tmp_path / "page")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert opened == [(tmp_path / "page" / "index.html").as_uri() + "#experts"]
    assert [path.name for path in (tmp_path / "page" / "models").iterdir()] == [
        "stories-moe.js"
    ]
    for wrong, message in (
        (["--view", "x"], "there is no view 'x'"),
        (["nosuch"], "no model"),
    ):
        done = CliRunner().invoke(app, ["look", *wrong])
        assert done.exit_code == 2 and message in done.stderr


def test_a_cell_shows_the_page_or_links_to_it(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw: shown.append(data))
    notebook.look("attention")
    address = shown[0]["text/plain"].split()[-1]
    assert address.startswith("http://127.0.0.1:") and address.endswith("index.html#attention")
    assert f'<object data="{address}" type="text/html"' in shown[0]["text/html"]
    page = urlopen(address).read().decode()
    assert "page-data.js" in page
    models = urlopen(address.replace("index.html", "models/stories-dense.js").split("#")[0])
    assert models.read(20).startswith(b"TinyLLM.receive(")
    port = address.split("/")[2].partition(":")[2]
    refused = {address: {"Host": f"evil.example:{port}"}, f"http://127.0.0.1:{port}/": {}}
    for each, headers in refused.items():
        with pytest.raises(HTTPError, match=r"40[34]"):
            urlopen(Request(each, headers=headers))
    monkeypatch.setenv("TINYLLM_LOOK", "../look/index.html")
    notebook.look("cache")
    assert 'href="../look/index.html#cache"' in shown[1]["text/html"]
    assert "<object" not in shown[1]["text/html"] and "127.0.0.1" not in str(shown[1])
    monkeypatch.setattr(learner_code.models, "reference", lambda: code(Unwritten))
    notebook.look("cache")
    assert "yet: Exercise 6.3: Qwen3ForCausalLM.</p>" in shown[2]["text/html"]
    with pytest.raises(ValueError, match="view is 'x'; there are overview"):
        notebook.look("x")
