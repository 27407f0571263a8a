"""The web edition: folded and omitted parts, links, and no loads from a network; in a browser,
if there is one, at the sizes of a desktop and a phone."""

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_output

from labkit.author.owned_cells import filled, model_answer, notebook_path, read_notebook
from labkit.author.reference import BuildError, reference_block
from labkit.course import cells
from labkit.course.lang import speaking
from labkit.course.syllabus import NOTEBOOKS, find_lab
from labkit.learner import hints
from labkit.look.page import VIEWS
from labkit.site import addresses, edition, execution
from labkit.site.edition import drop_links, write_site
from labkit.site.execution import complete, executing
from labkit.site.wrong import chosen, gallery, mistakes_of
from tests.course.raw import english_in, raw_in

pytest.importorskip(
    "myst_nb", reason="not checked: pip install -c constraints.txt -e '.[site]'"
)

TOUR, NORM = find_lab("tour", NOTEBOOKS), find_lab("rmsnorm")
DOT = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
LOADS = {"script": "src", "img": "src", "source": "src", "iframe": "src", "link": "href"}


def as_if_run(lab):
    """The notebook with a figure below its map, and printed text below every other cell."""
    notebook = complete(lab)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [new_output("stream", text="Once upon a time\n")]
    picture = f'<img src="data:image/png;base64,{DOT}" alt="A dot." width="1">'
    notebook.cells[2].outputs = [new_output("display_data", {"text/html": picture})]
    return notebook


@pytest.fixture(scope="module")
def wrong():
    """{lab: its wrong answers}, of one lab only."""
    return {NORM: gallery(NORM)}


@pytest.fixture(
    scope="module",
    params=[(TOUR, NORM), pytest.param(NOTEBOOKS, marks=pytest.mark.slow)],
    ids=["two labs", "all labs"],
)
def site(request, tmp_path_factory, wrong):
    """The site with its answers, in two languages."""
    folder = tmp_path_factory.mktemp("site") / "html"
    wrong_of = lambda lab: gallery(lab) if lab in wrong else []  # noqa: E731
    # set as in the workflow that publishes the site
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GITHUB_REPOSITORY", "Owner/course")
        write_site(folder, request.param, True, as_if_run, wrong_of, others=["zh"])
    return folder


@pytest.fixture(scope="module")
def bare(tmp_path_factory, wrong):
    """The site of one lab without its answers."""
    folder = tmp_path_factory.mktemp("bare") / "html"
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GITHUB_REPOSITORY", raising=False)
        patch.setattr(addresses, "ROOT", folder.parent)  # no repository
        write_site(folder, [NORM], False, as_if_run, wrong.get)
    return folder


class Reader(HTMLParser):
    """Collects a page's ids, links, loaded addresses, and pictures without alternative text."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loads, self.silent = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if "id" in attrs:
            self.ids.append(attrs["id"])
        if tag == "a" and "href" in attrs:
            self.links.append(attrs["href"])
        elif LOADS.get(tag) in attrs and attrs.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(attrs[LOADS[tag]])
        if tag == "img" and not attrs.get("alt"):
            self.silent.append(attrs["src"])


def pages(folder):
    return {path: Reader(path.read_text("utf-8")) for path in folder.rglob("*.html")}


def text_of(path):
    """The text of a file, without tags and extra spaces."""
    text = path.read_bytes().decode("utf-8", "replace")
    return squeezed(html.unescape(re.sub(r"<[^>]+>", "", text)))


def squeezed(text):
    return re.sub(r"[\s`*_\\]+", "", text).lower()


def sentences(text):
    return [s for s in map(squeezed, re.split(r"\n|(?<=[.:;]) ", text)) if len(s) > 25]


def secrets_of(lab):
    """Lines and sentences of the solutions, last hints and model answers that are not in the
    notebook."""
    notebook = filled(lab, read_notebook(notebook_path(lab)))
    given = squeezed("\n".join(cell.source for cell in notebook.cells))
    found = [model_answer(lab, question) for question in lab.questions]
    for exercise in lab.exercises:
        found.append(cells.plain(reference_block(lab, exercise)))
        found.append(hints.rungs(lab, exercise)[-1])
    return {s for text in found for s in sentences(text) if s not in given}


def test_help_is_there_and_folded(site):
    page = (site / "01_rmsnorm.html").read_text("utf-8")
    folds = re.findall(r"<details[^>]*>\s*<summary>(.*?)</summary>", page)
    assert "<details open" not in page
    for number, name in enumerate(hints.RUNGS, 1):
        assert f"Hint {number} of 3 for 1.2: {name}" in folds
    assert {"Solution of 1.2", "Model answer to 1.a"} <= set(folds)
    assert folds.count("Your prediction first; then: what comes out") >= 3
    assert re.search(r'name="1.why" value="c"> above 200</label>', page)
    before, solution = page.split("<summary>Solution of 1.2</summary>")
    assert "Exercise 1.2: RMSNorm" in html.unescape(before)
    assert "rsqrt" in solution.split("</details>")[0]
    text = text_of(site / "01_rmsnorm.html")
    assert not [secret for secret in secrets_of(NORM) if secret not in text]
    assert page.count("Once upon a time\n") > 10


def test_without_answers_no_file_holds_one(site, bare):
    secrets, files = secrets_of(NORM), [p for p in bare.rglob("*") if p.is_file()]
    assert len(secrets) > 30
    for path in files:
        if "look" not in path.relative_to(bare).parts:
            text = text_of(path)
            assert not [secret for secret in secrets if secret in text], path
    assert not [path for path in files if path.suffix in (".ipynb", ".md", ".pickle")]
    assert not (bare / "_sources").exists()
    # a word that occurs only in the model answers
    full, index = ((f / "sections.js").read_text("utf-8") for f in (site, bare))
    assert "blind" in full and "blind" not in index
    assert "Hint 2 of 3" in (bare / "01_rmsnorm.html").read_text("utf-8")


def test_every_link_leads_somewhere_and_nothing_is_loaded_from_outside(site, bare):
    for folder in (site, bare):
        found = pages(folder)
        for look in folder.rglob("look/index.html"):
            found[look].ids += VIEWS  # the page's script reads it
        for path, page in found.items():
            assert not page.silent, path
            assert len(page.ids) == len(set(page.ids)), path
            for address in page.loads:
                assert not re.match(r"(?!data:)\w+:|//", address), (path, address)
                file = "" if address.startswith("data:") else re.split("[?#]", address)[0]
                assert not file or (path.parent / file).is_file(), (path, address)
            for link in page.links:
                if re.match(r"(https?|mailto):", link):
                    continue
                where, _, anchor = link.partition("#")
                target = (path.parent / where).resolve() if where else path
                assert target.is_file(), (path, link)
                assert not anchor or anchor.split("&")[0] in found[target].ids, (path, link)
        for path in [*folder.rglob("*.css"), *folder.rglob("*.js")]:
            text = path.read_text("utf-8")
            assert not re.search(r"@import|url\(['\"]?(https?:)?//", text), path


def test_every_formula_can_be_drawn():
    convert = pytest.importorskip("latex2mathml.converter").convert
    for lab in NOTEBOOKS:
        for cell in read_notebook(notebook_path(lab)).cells:
            if cell.cell_type == "markdown":
                for formula in re.findall(r"\$\$.*?\$\$|\$[^$\n]+\$", cell.source, re.DOTALL):
                    drawn = convert(formula.strip("$"))
                    assert drawn.startswith("<math") and "\\" not in drawn, (lab.name, cell.id)


def test_the_gallery_shows_the_sentences_of_the_checks(site, bare):
    text = text_of(site / "01_rmsnorm.html")
    assert squeezed("the variance divides by E - 1 instead of E") in text
    assert squeezed("values differ in all entries") in text
    page = (site / "01_rmsnorm.html").read_text("utf-8")
    assert page.count("<summary>What was written</summary>") == 5
    page = (bare / "01_rmsnorm.html").read_text("utf-8")
    assert "What was written" not in page and "torch.var needs correction=0" in page
    for lab in NOTEBOOKS:  # a mistake of each exercise comes first
        if lab.exercises:
            found = chosen(mistakes_of(lab))
            assert 3 <= len(found) <= 5
            ids = {mistake.exercise.id for mistake in found}
            assert len(ids) == min(5, len(lab.exercises)), lab.name


def test_the_site_leads_to_the_repository_where_there_is_one(site, bare):
    repository = "https://github.com/Owner/course"
    for folder in (site, site / "zh"):
        for name in ("index", "00_tour", "01_rmsnorm"):
            assert f'href="{repository}"' in (folder / f"{name}.html").read_text("utf-8")
    page = (site / "01_rmsnorm.html").read_text("utf-8")
    assert f'href="{repository}/blob/HEAD/notebooks/01_rmsnorm.ipynb"' in page
    assert squeezed(f"git clone {repository}") in text_of(site / "index.html")
    for path in bare.glob("*.html"):
        assert "gitclone" not in text_of(path) and "/blob/" not in path.read_text()


@pytest.mark.parametrize(
    "remote, page",
    [
        ("git@github.com:owner/name.git", "https://github.com/owner/name"),
        ("https://token@git.uni.edu/group/sub/name.git/", "https://git.uni.edu/group/sub/name"),
        ("ssh://git@codeberg.org:22/owner/name", "https://codeberg.org/owner/name"),
        ("/home/me/course", ""),
        ("../course.git", ""),
        ("", ""),
    ],
)
def test_the_page_of_a_remote(remote, page):
    assert addresses.page_of_remote(remote) == page


def test_a_link_to_a_page_has_a_preview(site):
    for path, address in (
        ("index.html", ""),
        ("01_rmsnorm.html", ""),
        ("zh/index.html", "zh/"),
    ):
        page = (site / path).read_text("utf-8")
        found = dict(re.findall(r'<meta (?:name|property)="([\w:]+)" content="([^"]*)"', page))
        assert found["description"] == found["og:description"] and found["og:title"]
        picture = found["og:image"].removeprefix(f"https://owner.github.io/course/{address}")
        assert (site / path).with_name("_static") / "look.jpg" == (site / path).parent / picture
        assert ((site / path).parent / picture).stat().st_size > 5000
        assert bool(re.search("[\u4e00-\u9fff]", found["description"])) == bool(address)
        has_film = f'src="_static/look.{"zh." if address else ""}webp"' in page
        assert has_film == ("(prefers-reduced-motion: reduce)" in page) == ("index" in path)


def test_the_frame_of_a_page_speaks_its_language(site):
    for path in (site / "zh").glob("*.html"):
        page = path.read_text("utf-8")
        article = page[page.find("<article") : page.rfind("</article>")]
        frame = re.sub(r"<(script|style)\b.*?</\1>|<svg.*?</svg>", "", page, flags=re.S)
        texts = re.findall(r'>([^<>]*)<|(?:title|aria-label|placeholder|alt)="([^"]*)"', frame)
        words = {" ".join(filter(None, text)).strip() for text in texts}
        words -= {text for text in words if text in article}
        known = {"TinyLLM", "English", "Furo", *(f"{n} - TinyLLM" for n in words)}
        assert not [w for w in words - known if re.search(r"^[A-Za-z &#;©/]{4,}$", w)], path


def test_what_is_kept_is_not_executed_again_and_each_part_has_its_line(monkeypatch, tmp_path):
    monkeypatch.setattr(execution, "CACHE", tmp_path / "cache")
    form = r"0[01] \w+ in (English|中文), \d+ s(; about 1 min left)?"
    for expected in (4, 0, 4):
        lines = []
        with executing([TOUR, NORM], ("en", "zh"), lines.append, as_if_run) as notebook_of:
            assert nbformat.writes(notebook_of(NORM)) == nbformat.writes(as_if_run(NORM))
        assert len(lines) == expected and all(re.fullmatch(form, line) for line in lines)
        if not expected:
            monkeypatch.setattr(execution, "hash_shown", lambda language: "a check changed")
    assert len(list((tmp_path / "cache").iterdir())) == 4
    write_site(tmp_path / "html", [TOUR], False, as_if_run, lambda _: [], tell=lines.append)
    assert re.fullmatch(r"pages in English, \d+ s", lines[-1])


def test_a_page_is_made_again_when_its_notebook_changes(monkeypatch, tmp_path):
    """The others stay unchanged; all are made again after a call that was interrupted."""
    made, versions = [], {"rmsnorm": "1", "tour": "1"}
    monkeypatch.setattr(edition, "key", lambda lab: versions[lab.module])
    folders = [tmp_path / "html", tmp_path / "kept"]

    def changed(lab):
        notebook = as_if_run(lab)
        notebook.cells[0].source += f"\n\nThis is version {versions[lab.module]}."
        return notebook

    def write(expected):
        made.clear()
        wrong_of = lambda lab: made.append(lab.module) or []  # noqa: E731
        write_site(folders[0], [TOUR, NORM], True, changed, wrong_of, store=folders[1])
        assert made == expected
        pages = [folders[1] / "html" / f"{lab.name}.html" for lab in (TOUR, NORM)]
        return [page.stat().st_mtime_ns for page in pages]

    first = write(["tour", "rmsnorm"])
    assert write([]) == first
    versions["rmsnorm"] = "2"
    tour, norm = write(["rmsnorm"])
    assert tour == first[0] and norm > first[1]
    assert "This is version 2." in (folders[0] / "01_rmsnorm.html").read_text("utf-8")
    (folders[1] / "made-by").unlink()
    write(["tour", "rmsnorm"])


def test_nothing_raw_reaches_a_reader(site):
    for path in site.rglob("*.html"):
        page = re.sub(
            r"<(script|style|pre|code|math)\b.*?</\1>", " ", path.read_text("utf-8"), flags=re.S
        )
        page = re.sub(r"<em>.*?</em>|</?(strong|a|span)\b[^>]*>", "", page)  # names of menus
        text = html.unescape(re.sub(r"<[^>]+>", "\n", page))
        assert not raw_in(text), path
        assert "zh" not in path.parts or english_in(text) == [], path


def test_pages_are_light(site):
    for page in site.glob("*.html"):
        loads = {page.parent / path.split("?")[0] for path in Reader(page.read_text()).loads}
        files = [path for path in loads if path.is_file()]
        assert len(files) > 5 and sum(p.stat().st_size for p in (page, *files)) < 1e6, page


def test_another_language_has_the_same_sections_and_a_switch(site):
    names = [path.name for path in site.glob("0*.html")]
    assert len(names) >= 2
    for name in names:
        english, chinese = ((site / way / name).read_text("utf-8") for way in ("", "zh"))
        sections = [
            re.findall(r'<section[^>]* id="([^"]+)"', page) for page in (english, chinese)
        ]
        assert sections[0] == sections[1] and len(sections[0]) > 5
        assert f'href="zh/{name}"' in english and f'href="../{name}"' in chinese
        assert re.search('<html[^>]* lang="zh-CN"', chinese)
        assert "实验" in chinese and "实验" not in english
    assert not list(site.rglob("*.ipynb"))
    data = (site / "zh" / "look" / "page-data.js").read_text("utf-8")
    assert 'TinyLLM.words["zh-CN"]' in data


def test_a_link_to_a_lab_that_is_left_out_becomes_words():
    text = "See [lab 02](02_rope.ipynb) and [lab 03](03_gqa.ipynb#masks)."
    assert drop_links(text, ["02_rope"]) == "See [lab 02](02_rope.ipynb) and lab 03."


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(BuildError, match="no site; name a new folder"):
        write_site(tmp_path, [TOUR], True, as_if_run)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_translation_executes_its_lab_in_its_language_alone(monkeypatch):
    """Other notebooks stay as they are."""
    read, swiglu, keys = Path.read_bytes, find_lab("swiglu"), {}

    def read_changed(path):
        return read(path) + (b"# changed" if path.name in ("swiglu.po", "swiglu.md") else b"")

    for name in ("before", "after"):
        for spoken, lab in (("en", NORM), ("zh", NORM), ("zh", swiglu)):
            with speaking(spoken):
                keys[name, spoken, lab] = execution.key(lab)
        execution.hash_shown.cache_clear()
        monkeypatch.setattr(Path, "read_bytes", read_changed)
    for spoken in ("en", "zh"):
        assert keys["before", spoken, NORM] == keys["after", spoken, NORM]
    assert keys["before", "zh", swiglu] != keys["after", "zh", swiglu]


# In a browser

SIZES = {"desk": (1280, 800, False), "phone": (390, 844, True)}


def resize(browser, size):
    width, height, mobile = SIZES[size]
    metrics = {"width": width, "height": height, "mobile": mobile, "deviceScaleFactor": 1}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


@pytest.fixture
def open_page(browser, site):
    """Opens a page of the site; earlier entries in the browser's log are dropped."""

    def opened(name):
        resize(browser, "desk")
        for log in ("browser", "performance"):
            browser.get_log(log)
        browser.get(f"{site.as_uri()}/{name}")
        return browser

    return opened


def complaints(browser):
    return [line for line in browser.get_log("browser") if line["level"] != "INFO"]


def outside(browser):
    """The requested addresses that are not files of the site."""
    messages = [
        json.loads(line["message"])["message"] for line in browser.get_log("performance")
    ]
    sent = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    urls = [params["request"]["url"] for params in sent]
    return [url for url in urls if not url.startswith(("file:", "data:"))]


IN_FULL = ("index", "search", "00_tour")  # the others share their colors and their frame
SHADES = ("index", "00_tour", "01_rmsnorm")  # their contrasts are measured
STANDARD = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21aa"]}


def test_a_page_fits_asks_nobody_and_bars_nobody(site, open_page, barriers):
    for name in sorted(path.stem for path in site.glob("*.html")):
        browser = open_page(f"{name}.html")
        opened = "for (const fold of document.querySelectorAll('details')) fold.open = true;"
        browser.execute_script(opened)
        assert not complaints(browser) and not outside(browser), name
        for size in SIZES:
            resize(browser, size)
            script = "return [document.documentElement.scrollWidth, innerWidth]"
            wide, window = browser.execute_script(script)
            assert wide <= window, (name, size)
        resize(browser, "desk")
        measured = {"color-contrast": {"enabled": name in SHADES}}
        if name in IN_FULL:
            barriers(browser, rules=measured)
            browser.execute_script("document.body.dataset.theme = 'dark'")
            barriers(browser, runOnly=["color-contrast"])
        else:
            code = {"exclude": [[".highlight"]]}
            barriers(browser, code, runOnly=STANDARD, rules=measured)


def test_folds_open_by_key_by_choice_and_on_paper(open_page):
    from selenium.webdriver.common.by import By

    browser = open_page("01_rmsnorm.html")
    shut = "return document.querySelectorAll('details:not([open])').length"
    help_shut = shut.replace(":not([open])", ".help:not([open])")
    before = browser.execute_script(shut)
    browser.find_element(By.CSS_SELECTOR, "summary").send_keys("\ue007")  # Enter
    assert browser.execute_script(shut) == before - 1
    browser.find_element(By.CSS_SELECTOR, "input[name='1.why'][value=a]").send_keys(" ")
    assert browser.execute_script(shut) == before - 2
    # hints are printed only if a reader asks for them
    hidden = browser.execute_script(help_shut)
    for asks, left in ((False, hidden), (True, 0)):
        browser.execute_script(
            "document.getElementById('print-help').checked = arguments[0]", asks
        )
        browser.execute_script("dispatchEvent(new Event('beforeprint'))")
        assert browser.execute_script(shut) == left and hidden > 10
        browser.execute_script("dispatchEvent(new Event('afterprint'))")
        assert browser.execute_script(shut) == before - 2


def test_code_can_be_copied(open_page):
    browser, buttons = open_page("01_rmsnorm.html"), "document.querySelectorAll('.copybtn')"
    script = f"return [...{buttons}].map((e) => e.dataset.tooltip)"
    labels = browser.execute_script(script)
    assert len(labels) > 20 and set(labels) == {"Copy"}
    assert not browser.execute_script("return document.querySelector('.cell_output .copybtn')")
    assert set(open_page("zh/01_rmsnorm.html").execute_script(script)) == {"复制"}


def test_paper_has_the_text_and_nothing_over_it(open_page):
    browser = open_page("01_rmsnorm.html")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        script = "return getComputedStyle(document.querySelector(arguments[0])).display"
        for selector in (".skip-to-content", "details.help"):
            assert browser.execute_script(script, selector) == "none", selector
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


@pytest.mark.parametrize("where, asked", [("", "deepnorm"), ("", "rope"), ("zh/", "归一化")])
def test_the_search_shows_the_place_and_leads_there(open_page, where, asked):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    browser = open_page(f"{where}search.html?q={asked}")
    results = browser.find_elements(By.CSS_SELECTOR, "#search-results li")
    mark = results[0].find_element(By.TAG_NAME, "mark")
    assert mark.text.lower() == asked
    before = "return arguments[0].previousSibling.textContent"
    assert where or not re.search(r"\w$", browser.execute_script(before, mark))
    link = results[0].find_element(By.TAG_NAME, "a")
    assert ".html?q=" in link.get_attribute("href") and "#" in link.get_attribute("href")
    link.click()
    seen = """
        const mark = document.querySelector("article mark");
        const box = mark?.getBoundingClientRect();
        return box?.height > 0 && box.top >= 0 && box.bottom <= innerHeight;"""
    WebDriverWait(browser, 10).until(lambda _: browser.execute_script(seen))
    assert not complaints(browser) and not outside(browser)


def test_a_term_is_explained_on_a_tap(open_page):
    browser = open_page("01_rmsnorm.html")
    script = "return [...document.querySelectorAll('.term')].map((each) => each.textContent)"
    terms = browser.execute_script(script)
    assert "RMSNorm" in terms and len(terms) == len(set(terms))
    browser.execute_script("document.querySelector('.term').click()")
    assert (
        len(browser.execute_script("return document.querySelector('.meaning').innerText")) > 30
    )
    browser.execute_script("dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' }))")
    assert not browser.execute_script("return document.querySelector('.meaning')")


def test_the_list_of_sections_stays_beside_the_text(open_page):
    browser = open_page("01_rmsnorm.html")
    script = """
        const rail = document.querySelector(".toc-drawer").getBoundingClientRect();
        return rail.left > document.querySelector("article").getBoundingClientRect().right - 1
            && rail.right <= innerWidth;"""
    assert browser.execute_script(script)
    browser.execute_script("document.querySelectorAll('article h2')[2].scrollIntoView()")
