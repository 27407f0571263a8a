"""The page in a browser: every view works, loads nothing from outside, is open to everyone."""

import re
from itertools import islice
from random import Random

import pytest
import torch
import torch.nn.functional as F
from judged import JUDGED

import solutions
from labkit.look.page import STATIC, VIEWS, words
from labkit.model import checkpoint, hub
from labkit.model.chat.manners import Message
from labkit.model.tokenizer import Tokenizer
from solutions import gqa
from solutions.generation import generate
from storyworld import stories
from storyworld.reader import read_story, split_sentences

DENSE = hub.SHIPPED["stories-dense"]
# English words that other languages keep
NAMES = re.compile(r"stories-(dense|moe)|\bown\b|KiB|Tell me a .*|Wh\w+ \w+ [^?]*\?")
KEPT = "#panel .split > div + div > .quiet"  # "7 of 1536 tokens can be drawn"


@pytest.fixture(scope="module")
def model():
    return checkpoint.load(DENSE, solutions, torch.float32)


def test_a_view_opens_alone_complete_and_open_to_all(opened, page, barriers):
    for view in VIEWS:
        opened.open(view)
        sent = opened.requests()
        assert any("/models/" in url for url in sent)
        assert all(url.startswith((page.as_uri(), "data:")) for url in sent), view
        drawn = "[...document.querySelectorAll('svg:not([aria-hidden]), .big')]"
        labels = opened.js(f"return {drawn}.map((e) => e.ariaLabel)")
        assert all(len(text) > 40 for text in labels), view
        assert labels or view in ("tokens", "swap")
        links = opened.js("return [...document.querySelectorAll('.lab a')].map((e) => e.href)")
        assert links == ([opened.address + "#tokens"] if view == "experts" else [])
        assert not opened.js("return document.getElementById('home').checkVisibility()")
        for size, (width, _) in opened.SIZES.items():
            opened.resize(size)
            assert opened.js("return document.documentElement.scrollWidth") <= width, view
        assert opened.browser.get_log("browser") == []
        barriers(opened.browser)
        opened.js("document.documentElement.dataset.theme = 'dark'")
        barriers(opened.browser, runOnly=["color-contrast"])


def test_the_page_is_light_and_stands_before_the_model_is_read(opened, page):
    files = [path for path in page.rglob("*") if path.is_file()]
    beside = sum(path.stat().st_size for path in files if path.parent.name != "models")
    assert beside < 240_000  # a twentieth of a model; 40 kB for the reader of stories
    opened.open("tokens")
    painted, asked = opened.js("""
        const marks = ["first-contentful-paint", "model asked for"];
        return marks.map((name) => performance.getEntriesByName(name)[0].startTime);""")
    assert painted <= asked


def test_a_request_is_answered_as_the_reference_answers_it(opened, model):
    tokenizer, request = Tokenizer(DENSE), "Tell me a story about a fox."
    prompt = torch.tensor([tokenizer.chat_prompt([{"role": "user", "content": request}])])
    stops = sorted(tokenizer.stop_ids)
    written = generate(model, prompt, max_new_tokens=300, eos_token_id=stops)[0].tolist()

    opened.at("tokens")
    opened.turn("temperature", 0)
    opened.new()
    opened.ask(request)
    assert opened.js("return TinyLLM.app.run.ids") == written
    assert tokenizer.decode(written[prompt.size(1) :]) in opened.texts("#text")[0]
    assert "ended its turn itself" in opened.texts("#status")[0]
    # a question about the story continues the same text, as in a chat
    story, question = tokenizer.decode(written[prompt.size(1) :]), "Where is the fox?"
    roles = ("user", request), ("assistant", story), ("user", question)
    talk = [{"role": role, "content": content} for role, content in roles]
    prompt = torch.tensor([tokenizer.chat_prompt(talk)])
    opened.ask(question)
    both = generate(model, prompt, max_new_tokens=60, eos_token_id=stops)[0].tolist()
    assert opened.js("return TinyLLM.app.run.ids") == both
    (_, first), (begin, _) = opened.js("return TinyLLM.app.answers")
    assert (first, begin) == (len(written) - 1, prompt.size(1))


def test_without_a_cache_the_model_would_read_the_text_again_and_again(opened):
    opened.at("cache")
    opened.new()
    opened.ask("Tell me a story about a kite.")
    opened.ask("Where is the kite?")
    opened.until("document.querySelector('.facts').textContent.includes('in all')")
    ids, answers = opened.js("return [TinyLLM.app.run.ids.length, TinyLLM.app.answers]")
    # one step of generate() per written token, on all tokens before it
    runs = [t for begin, end in answers for t in range(begin, min(end + 1, ids))]
    said = opened.texts(".facts")[0]
    assert f"each of the {len(runs)} tokens" in said and f"{sum(runs):,} tokens in all" in said
    assert len(answers) == 2 and sum(runs) < ids * (ids + 1) / 2


def test_the_address_brings_everything_back(opened):
    opened.open("tokens")
    opened.turn("temperature", 0.8)
    opened.new()
    opened.ask("Tell me a story about a map.")
    opened.ask("Who has the map?")
    opened.js("TinyLLM.app.pick(30)")
    opened.until("location.hash.includes('token=30')")
    ids, address = opened.js("return [TinyLLM.app.run.ids, location.href]")
    assert "q=Tell+me+a+story+about+a+map.&q=Who+has" in address and "text=" not in address

    opened.js("location.hash = TinyLLM.link('attention', { layer: 2, head: 3 })")
    opened.until("document.querySelector('.minis [aria-pressed=true]')")
    # a reload, or another person with this address
    opened.visit(opened.js("return location.href"))
    state = "const { run, selected, layer, head } = TinyLLM.app;"
    assert opened.js(f"{state} return [run.ids, selected, layer, head]") == [ids, 30, 2, 3]
    opened.visit(address)
    assert opened.js("return TinyLLM.app.knobs.temperature") == 0.8
    assert opened.js("return TinyLLM.app.run.ids") == ids

    # after a change by hand the text is read token by token; Back returns to the former text
    other = opened.js("return TinyLLM.topk(TinyLLM.app.run.steps[30].logits, 3)[2]")
    opened.js("TinyLLM.app.goOnWith(arguments[0])", other)
    opened.until("!TinyLLM.app.writing && location.hash.includes('text=')")
    changed, there = opened.js("return [TinyLLM.app.run.ids, location.href]")
    opened.browser.back()
    opened.until("!location.hash.includes('text=') && TinyLLM.app.requests.length === 2")
    opened.until("!TinyLLM.app.writing")
    assert opened.js("return TinyLLM.app.run.ids") == ids
    opened.visit(there)
    assert opened.js("return TinyLLM.app.run.ids") == changed != ids
    opened.visit(f"{opened.address}#swap&model=stories-moe&swap=expert-0")
    opened.until("document.querySelector('.choice [aria-pressed=true]')")
    assert opened.texts(".choice [aria-pressed=true]") == ["always expert 0"]


def test_an_address_may_hold_anything(opened):
    names = (
        "constructor",
        "__proto__",
        "toString",
        "no-such-view",
        "%",
        "swap&swap=constructor",
    )
    numbers = ("layer", "head", "token", "seed", "top-k", "top-p", "temperature")
    odd = "&".join(f"{name}={{0}}" for name in numbers)
    views = [f"{view}&{odd.format(value)}" for view in VIEWS for value in (-3, 0.5, 1e300)]
    opened.open("tokens")
    for wanted in (*names, *views):
        opened.js("location.hash = arguments[0]", wanted)
        opened.until("!TinyLLM.app.writing && panel.children.length > 2")
        opened.js("return new Promise((drawn) => setTimeout(drawn, 50))")
        assert opened.js("return panel.dataset.view") in VIEWS, wanted
        assert opened.browser.get_log("browser") == [], wanted
    marks = opened.js("return [TinyLLM.visible('toString'), TinyLLM.visible('<|im_end|>')]")
    assert marks == ["toString", "⟩"]
    world = {"things": "(a+)+$, [, kite"}
    found = opened.js("return TinyLLM.samples.questions('A kite.', arguments[0])", world)
    assert found == ["Where is the kite?", "Who has the kite?"]


def test_nothing_is_answered_in_silence(opened):
    opened.open("tokens")
    opened.new()
    for request, said in (
        ("  ", "The box is empty"),
        ("Tell me a story. " * 200, "shorten it"),
    ):
        opened.ask(request)
        assert said in opened.texts("#status")[0]
        assert opened.js("return TinyLLM.app.run.ids.length") == 3  # nothing was read
    opened.press("#new", "New text")
    opened.js("request.value = 'Tell me a story about a fox.'")
    opened.press("#step", "+1 token")
    opened.until("!TinyLLM.app.writing && TinyLLM.app.run.ids.length > 12")
    assert opened.js("return TinyLLM.app.run.ids.length - TinyLLM.app.promptLength") == 1
    assert "It wrote" in opened.texts("#status")[0]
    text = opened.js("return document.getElementById('lists').textContent")
    assert "kite" in text and "Noah" in text


@pytest.mark.parametrize(
    "request_", ["给我讲一个狐狸的故事", "Zoë’s café 👩‍👩‍👧 e\u0301", "a\u3000b"]
)
def test_the_text_is_shown_in_whole_characters(opened, barriers, request_):
    opened.at("tokens")
    opened.new()
    opened.ask(request_)
    text, options, pieces = opened.js("""
        const box = document.getElementById("text");
        const at = (each) => [each.ariaLabel, each.getBoundingClientRect().width];
        return [box.textContent, [...box.querySelectorAll("[role=option]")].map(at),
            [...box.querySelectorAll(".piece")].map((each) => each.ariaLabel)];""")
    assert request_ in text and "\ufffd" not in text
    # each token can be picked
    assert len(options) == opened.js("return TinyLLM.app.run.ids.length")
    assert all(label and width > 0 for label, width in options)
    characters = [each for each in request_ if len(each.encode()) > 1]
    pieces = [each.strip() or each for each in pieces]
    assert pieces and set(pieces) <= {"👩‍👩‍👧", "e\u0301", *characters}
    first = next(i for i, (label, _) in enumerate(options) if "token 2 of" in label)
    parts = sum(label.startswith(pieces[0]) for label, _ in options)
    assert (
        opened.js("return TinyLLM.app.shown(arguments[0])", first) == f"{pieces[0]} 2/{parts}"
    )
    barriers(opened.browser, "#text")


def test_words_that_the_model_does_not_know_are_marked_before_they_are_sent(opened):
    opened.open("tokens")
    for request, unknown, instead in (
        ("Tell me a story about a dragon and a red kite.", "dragon", "rabbit"),
        ("Tell me a story about Anastasia and a kite.", "Anastasia", "Ivy"),
        ("A sad story about a robot in the school, please", "sad school", "ball"),
        ("讲一个故事 please", "讲一个故事", "ball"),
        ("Can you tell me a long story about a toy boat named Felix?", "", ""),
        ("Felix hid a key under the oak tree. Where's the key?", "", ""),
        ("Why was Anna sad? How many apples does Ben have?", "", ""),
    ):
        opened.js(
            "request.value = arguments[0]; request.dispatchEvent(new Event('input'))", request
        )
        marked, text, is_hidden = opened.js("""
            const box = document.getElementById("unknown");
            const marks = [...box.querySelectorAll("mark")].map((each) => each.textContent);
            return [marks.join(" "), box.textContent, box.hidden];""")
        assert (marked, is_hidden) == (unknown, not unknown), request
        assert instead in text
    opened.js("request.value = 'a dragon'; request.dispatchEvent(new Event('input'))")
    opened.new().ask("a dragon")
    assert opened.js("return document.getElementById('unknown').hidden")


def test_questions_are_about_the_story_that_was_told_last(opened):
    opened.open("tokens")
    opened.turn("temperature", 0)
    opened.ask("Tell me a story about a violin.")
    opened.ask("Who has the violin?")
    assert "Where is the violin?" in opened.texts("#samples button")


def test_a_slow_computer_can_act_between_two_layers_and_two_pictures(opened):
    """With a fast clock, a pause follows each layer and each head's picture."""
    opened.open("attention")
    work, pictures = opened.browser.execute_async_script("""
        const done = arguments[0], T = TinyLLM, app = T.app, found = [[0], [0]];
        const count = (object, name, which, size) => {
            const plain = object[name];
            object[name] = function (...given) {
                found[which][found[which].length - 1] += size(given);
                return plain.apply(this, given);
            };
        };
        let now = performance.now();
        performance.now = () => (now += 10);
        const { prototype: port } = MessagePort, post = port.postMessage;
        port.postMessage = function (...given) {
            for (const each of found) each.push(0);
            return post.apply(this, given);
        };
        count(T, "linear", 0, ([weight]) => weight.data.length);
        count(CanvasRenderingContext2D.prototype, "putImageData", 1, () => 1);
        new T.Run(app.loaded.model).read(app.run.ids.slice(0, 4)).then(() => {
            document.getElementById("theme").click();  // draws all heads anew
            const drawn = () => found[1].reduce((sum, count) => sum + count);
            const wait = () => (drawn() < 17 ? setTimeout(wait, 50) : done(found));
            wait();
        });""")
    # the longest piece of work is under 40 % of one token's
    assert sum(work) > 0 and max(work) < 0.4 * sum(work) / 4
    assert sum(pictures) == 17 and max(pictures) <= 2


def test_a_new_token_costs_one_row_of_each_head(opened):
    opened.open("attention")
    opened.new().js("request.value = 'Tell me a story about a fox.'")
    opened.press("#step", "+1 token")
    opened.until("!TinyLLM.app.writing && document.querySelectorAll('.minis canvas').length")
    opened.until("TinyLLM.app.run.ids.length > 12")
    opened.js("""
        const { prototype } = CanvasRenderingContext2D, put = prototype.putImageData;
        globalThis.rows = [];
        prototype.putImageData = function (image, ...place) {
            rows.push(image.height);
            put.call(this, image, ...place);
        };""")
    opened.press("#step", "+1 token")
    opened.until("rows.length >= 17 && !TinyLLM.app.writing")
    assert opened.js("return rows") == [1] * 17  # sixteen small ones and the large one


def test_another_model_while_one_writes(opened):
    opened.open("attention")
    script = """
        const model = document.getElementById("model");
        model.value = arguments[0];
        model.dispatchEvent(new Event("change"));"""
    for name in ("stories-moe", "own", "stories-dense"):
        opened.new().js("request.value = 'Tell me a long story.'")
        opened.press("#go", "Ask")
        opened.until("!!TinyLLM.app.writing")
        opened.js(script, "own")
        opened.js(script, name)  # once more, while a model is read
        opened.until(f"TinyLLM.app.loaded?.name === '{name}' && !TinyLLM.app.writing")
    assert opened.browser.get_log("browser") == []


def test_knobs_bars_and_keys(opened):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    opened.open("tokens")
    ids, picked, asked, sure = opened.js("""
        const { app } = TinyLLM;
        const { ids } = app.run;
        return [ids, app.selected, app.promptLength, ids.map((_, i) => app.sure(i))];""")
    assert sure[picked] == min(sure[asked - 1 : -1]) < 0.3
    opened.until("document.querySelectorAll('.way li').length === 5")
    names = [text.strip() for text in opened.texts(".way .guess b")]
    assert names[0].strip("␣") == opened.js(f"return TinyLLM.app.shown({picked})")
    assert names[-3:] == [text.split()[0] for text in opened.texts(".bars .name")[:3]]
    opened.turn("temperature", 2)
    opened.turn("top-p", 1)
    opened.until(f"document.querySelector('{KEPT}').textContent.startsWith('1536 of 1536')")
    opened.turn("top-k", 1)
    opened.until(f"document.querySelector('{KEPT}').textContent.startsWith('1 of 1536')")
    third = opened.js(f"return TinyLLM.topk(TinyLLM.app.run.steps[{picked}].logits, 3)[2]")
    # though the list is cut off
    opened.js("document.querySelectorAll('.bars button')[2].click()")
    opened.until(f"TinyLLM.app.run.ids.length > {picked + 5}")  # the story goes on from there
    opened.press("#go", "Stop")
    opened.until("!TinyLLM.app.writing && !document.getElementById('go').dataset.stops")
    again = opened.js("return TinyLLM.app.run.ids")
    assert again[: picked + 2] == [*ids[: picked + 1], third]
    told = opened.js(
        "return [...document.querySelectorAll('#text span')].map((e) => e.ariaLabel)"
    )
    name = opened.js(
        "return TinyLLM.visible(TinyLLM.app.loaded.tokenizer.decode([arguments[0]]))", third
    )
    assert (len(told), told[picked + 1]) == (len(again), name)
    opened.browser.find_element(By.ID, "text").send_keys(Keys.HOME, Keys.ARROW_RIGHT)
    opened.until("document.querySelector('#panel h3 q').textContent === 'user'")


def test_a_swap_is_heard_and_costs_what_it_costs_the_reference(opened, model, monkeypatch):
    opened.at("swap").until("document.querySelector('.nats').dataset.done")
    ours = dict(row.split("\n") for row in opened.texts(".nats .bar"))
    tokenizer = Tokenizer(DENSE)
    ids = torch.tensor([tokenizer.encode(opened.js("return TinyLLM.PASSAGE"))])
    theirs = {}

    def measure(name):
        with torch.no_grad():
            theirs[name] = float(F.cross_entropy(model(ids)[0, :-1], ids[0, 1:]))

    measure("as it is")
    with monkeypatch.context() as patch:
        patch.setattr(gqa, "repeat_kv", lambda x, times: x.repeat(1, times, 1, 1))
        measure("repeat")
    with monkeypatch.context() as patch:
        patch.setattr(gqa, "apply_rotary_pos_emb", lambda query, key, *_: (query, key))
        measure("no RoPE")
    assert theirs["repeat"] > theirs["as it is"] + 0.5
    for name, cost in theirs.items():
        assert float(ours[name]) == pytest.approx(cost, abs=0.006), name
    true, swapped = opened.texts(".heard")
    assert len(true) > 40 and true != swapped
    beyond = opened.js("return [...document.querySelectorAll('.nats .over')].length")
    assert beyond == sum(cost == "> 100" for cost in ours.values())
    opened.press(".choice button", "repeat")
    opened.until("document.querySelector('#panel .reading').textContent.startsWith('repeat')")


def test_experts_that_nobody_picks_are_named(opened):
    opened.open("experts")
    picked = opened.js("""
        const { steps } = TinyLLM.app.run;
        return [1, 3].map((l) => steps.flatMap((e) => e.layers[l].expertsSeen.chosen));""")
    for sentence, chosen in zip(opened.texts("figcaption"), picked, strict=True):
        idle = ", ".join(str(expert) for expert in range(8) if expert not in chosen)
        assert (f"{idle} w" if idle else "every expert was picked") in sentence


# the words of the page, which are in one table


def test_every_word_that_is_asked_for_is_there():
    scripts = "".join(path.read_text("utf-8") for path in STATIC.rglob("*.js"))
    asked = re.findall(r'T\.(?:word|phrase)\("([\w.-]+)"', scripts)
    asked += re.findall(
        r'data-word[\w-]*="([\w.-]+)"', (STATIC / "index.html").read_text("utf-8")
    )
    assert len(asked) > 60 and not set(asked) - words().keys()


def test_in_another_language_no_english_is_left(browser, page):
    """In a language of one letter, with tokens that are numbers."""
    browser.get((page / "index.html").as_uri() + "#experts")
    script = """
        const [views, done] = arguments, T = TinyLLM, found = [];
        const pause = () => new Promise((resolve) => setTimeout(resolve, 20));
        const until = async (is) => { while (!is()) await pause(); };
        const attributes = ["title", "aria-label", "aria-valuetext", "aria-roledescription"];
        const read = (root) => {
            found.push(root.innerText);
            for (const element of root.querySelectorAll("*"))
                found.push(...attributes.map((name) => element.getAttribute(name)));
        };
        (async () => {
            await until(() => document.documentElement.dataset.ready === "yes");
            T.Tokenizer.prototype.decode = () => "7";
            T.Tokenizer.prototype.pieces = (ids) => ids.map(() => ({ text: "7", size: 1 }));
            const bare = (sentence) => `§${(sentence.match(/{\\w+}/g) || []).join("§")}`;
            T.words.xx = Object.fromEntries(
                Object.entries(T.words.en).map(([key, sentence]) => [key, bare(sentence)]));
            document.documentElement.lang = "xx";
            T.app.textChanged();
            T.worded(document);
            const open = async (view) => {
                location.hash = view;
                await until(() => panel.dataset.view === view);
                await T.app.writing;
                await until(() => panel.children.length > 2);
                read(panel);
            };
            for (const view of views) await open(view);
            T.app.loaded.config.num_experts = 0;  // and what is said of a dense model
            location.hash = "tokens";
            await open("experts");
            read(document.querySelector("header"));
            read(document.querySelector("main > .card"));
            done(found);
        })().catch((error) => done([String(error)]));"""
    found = browser.execute_async_script(script, VIEWS)
    left = [text for text in found if re.search(r"[A-Za-z]{3}", NAMES.sub("", text or ""))]
    assert len(found) > 1000 and not left


def test_the_page_judges_requests_and_answers_as_the_terminal_does(opened):
    opened.open("tokens")
    ours = opened.js(
        """
        const { world } = TinyLLM.factsOf("stories-dense"), heard = TinyLLM.page.heard;
        return arguments[0].map(([text, earlier, answer]) => [
          TinyLLM.samples.unknown(text, world, heard)[0],
          TinyLLM.samples.fault(text, answer, earlier, world, heard),
          TinyLLM.samples.lacksStory(text, earlier, world, heard)]);""",
        [row[:3] for row in JUDGED],
    )
    for (text, earlier, answer, unknown, (fault, missing)), found in zip(
        JUDGED, ours, strict=True
    ):
        message = Message(text, earlier)
        assert message.fault(answer) == (fault, missing)
        key = f"fault.{fault.replace(' ', '-')}" if fault else ""
        assert found == [unknown, [key, missing], message.lacks_story], text


def test_the_page_reads_stories_as_the_reader_does(opened):
    """With the sentences of stories in order, in random order, and the first four only."""
    rng, told = Random(3), []
    for story in islice(stories(1_001_800), 60):
        sentences = split_sentences(story.text)
        for length in (len(sentences), len(sentences), 4):
            told.append((sentences[:length], [question for question, _ in story.questions]))
            sentences = rng.sample(sentences, len(sentences))
    opened.open("tokens")
    script = """
        const reader = TinyLLM.reader(TinyLLM.page.heard.reader);
        return arguments[0].map(([sentences, questions]) => questions.map((question) =>
          reader.answer(sentences, question.slice(0, -1).toLowerCase())));"""
    for (sentences, questions), found in zip(told, opened.js(script, told), strict=True):
        reading = read_story(" ".join(sentences))
        unclear = list(dict.fromkeys(reading.unclear))
        assert found == [[reading.answer(each), unclear] for each in questions], sentences


def test_a_question_without_a_story_is_not_sent(opened):
    opened.open("tokens")
    opened.turn("temperature", 0)
    opened.new()
    opened.js("request.value = 'Where is the kite?'; document.getElementById('go').click()")
    assert "no story to ask about" in opened.texts("#status")[0]
    assert opened.js("return TinyLLM.app.requests") == []
    opened.new().ask("Tell me a story about an owl.")
    assert "not in this story: owl" in opened.texts("#status")[0]
