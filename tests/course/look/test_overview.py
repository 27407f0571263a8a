"""The overview: one token on its way, with the numbers of the reference; the tour."""

import pytest
import torch

import solutions
from labkit.model import checkpoint, hub
from labkit.model.tokenizer import Tokenizer

DENSE = hub.SHIPPED["stories-dense"]


def test_the_overview_shows_the_numbers_of_the_reference(opened):
    """The stream's size before each norm, and the guess after each layer."""
    opened.open("overview")
    ids, i = opened.js("return [TinyLLM.app.run.ids, TinyLLM.app.selected]")
    model = checkpoint.load(DENSE, solutions, torch.float32)
    sizes, streams = [], []

    def measure(_module, given):
        sizes.append(given[0][0, i].square().mean().sqrt().item())

    def keep(_module, _given, output):
        streams.append(output if isinstance(output, torch.Tensor) else output[0])

    for layer in model.model.layers:
        layer.input_layernorm.register_forward_pre_hook(measure)
        layer.post_attention_layernorm.register_forward_pre_hook(measure)
        layer.register_forward_hook(keep)
    with torch.no_grad():
        model(torch.tensor([ids]))
        best = [int(model.lm_head(model.model.norm(each))[0, i].argmax()) for each in streams]
    shown = [text for text in opened.texts(".layer .inner") if "→" in text]
    assert [float(text.split()[0]) for text in shown] == pytest.approx(
        sizes, rel=0.01, abs=0.006
    )
    tokenizer = Tokenizer(DENSE)
    guesses = [text.strip("␣") for text in opened.texts(".layer .says b")]
    assert guesses == [tokenizer.decode([token]).strip() for token in best] and len(best) == 4


def test_a_token_goes_step_by_step_and_running(opened):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    opened.open("overview")
    on = "[...document.querySelectorAll('.station')].findIndex((e) => e.matches('.on'))"
    opened.until(f"{on} > 0")  # the animation begins by itself
    opened.press(".player button", "❚❚ Pause")
    slider = opened.browser.find_element(By.CSS_SELECTOR, ".player input")
    slider.send_keys(Keys.HOME, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    opened.until(f"{on} === 2 && location.hash.includes('part=2')")
    assert slider.get_attribute("aria-valuetext") == "Attention, layer 0"
    opened.until("document.querySelector('#text span[style*=heat]')")
    assert "heads look back" in opened.texts(".stage p")[0]
    links = opened.js("return [...document.querySelectorAll('.links a')].map((e) => e.hash)")
    assert links[0].startswith("#attention") and "layer=0" in links[0]
    token = opened.js("return TinyLLM.app.selected")
    opened.press(".player button", "Fast")
    opened.press(".player button", "▶ Play")
    opened.until(f"TinyLLM.app.selected === {token + 1}")  # then the next token
    opened.press(".player button", "❚❚ Pause")


def test_the_overview_fits_one_screen(opened):
    opened.open("overview")
    opened.resize("desktop")
    for part in (0, 2, 4, 18):
        opened.js("location.hash = TinyLLM.link('overview', { part: arguments[0] })", part)
        opened.until(f"TinyLLM.app.part === {part} && document.querySelector('.stage svg, ol')")
        bottom, view = opened.js(
            "return [panel.getBoundingClientRect().bottom + scrollY, innerHeight]"
        )
        assert bottom <= view, part


def test_the_tour_leads_through_the_views_and_ends_by_escape(opened):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    opened.open("overview")
    opened.press("button", "Tour")
    seen = []
    for _ in range(6):
        opened.until(
            "document.querySelector('.lit') && document.activeElement.closest('#tour')"
        )
        seen.append(opened.js("return panel.dataset.view"))
        opened.js("document.querySelector('.lit').classList.remove('lit')")
        opened.browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert seen == ["overview", "overview", "overview", "tokens", "swap", "overview"]
    assert not opened.browser.find_elements(By.ID, "tour")
    opened.press("button", "Tour")
    opened.until("document.activeElement.closest('#tour')")
    opened.browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not opened.browser.find_elements(By.ID, "tour")
    assert opened.js("return document.activeElement.id") == "tour-button"
