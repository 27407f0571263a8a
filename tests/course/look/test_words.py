"""The words of the page stand in one table, so that they can be said in another language."""

import re

from labkit.look.page import STATIC, VIEWS

ENTRY = re.compile(r'^    "([\w.-]+)": "(.*)",$', re.MULTILINE)
NAMES = re.compile(r"stories-(dense|moe)|\bown\b|KiB|Tell me a story[^.]*|Who are you")
ENGLISH = dict(ENTRY.findall((STATIC / "words.js").read_text("utf-8")))


def test_every_word_that_is_asked_for_is_there():
    scripts = "".join(path.read_text("utf-8") for path in STATIC.rglob("*.js"))
    asked = re.findall(r'T\.(?:word|phrase)\("([\w.-]+)"', scripts)
    asked += re.findall(
        r'data-word[\w-]*="([\w.-]+)"', (STATIC / "index.html").read_text("utf-8")
    )
    assert len(asked) > 60 and not set(asked) - ENGLISH.keys()


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
            const bare = (sentence) => `§${(sentence.match(/{\\w+}/g) || []).join("§")}`;
            T.words.xx = Object.fromEntries(
                Object.entries(T.words.en).map(([key, sentence]) => [key, bare(sentence)]));
            document.documentElement.lang = "xx";
            document.getElementById("text").replaceChildren();
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
