"""Make the pictures of the READMEs and the front page anew, each by its name:

    python benchmarks/film.py labkit/site/static/look.webp      and look.zh.webp
    python benchmarks/film.py .github/lab.webp                  and lab.zh.webp

look: one token goes through the whole model in the look page, station by station, then the
story goes on. lab: a notebook in JupyterLab, with a wrong answer and its report. All are
screenshots of the real thing in headless Chromium (Debian: chromium chromium-driver, for
Chinese fonts-noto-cjk; Python: selenium and Pillow), so that they show what a learner sees."""

import io
import os
import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep

import nbformat
from nbclient import NotebookClient
from PIL import Image
from selenium import webdriver

from labkit.course.lang import language, speaking
from labkit.course.paths import ROOT
from labkit.course.syllabus import find_exercise
from labkit.look.page import write
from labkit.site.execution import complete

SIZE, WIDTH = (1280, 780), 960  # sizes of the window and of the film
LAB_SIZE = (1180, 900)
MOST = {"look": 3 * 2**20, "lab": 150_000}  # bytes
TOKENS = 13  # tokens that the model writes at the end
WRONG = "1.2", ".mean(", ".sum("  # an exercise, and what is wrong with the answer to it
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-quic"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
    "--disable-sync",
)
READY = "return document.documentElement.dataset.ready === 'yes' && !TinyLLM.app.writing"
ADDRESS = "#overview&model=stories-moe&q=Tell+me+a+story+about+a+kite.&seed=2"
# the story up to the first "to": the model has to find out to whom somebody gives the kite
CUT = """
    const { app } = TinyLLM, to = app.run.ids.findIndex((_, i) => app.shown(i) === "to");
    app.run.cut(to + 1);
    app.select(to);"""
GO = """
    const [part, done] = arguments;
    location.hash = TinyLLM.link("overview", { part });
    setTimeout(done, 500);"""
WRITE = """
    const done = arguments[0];
    TinyLLM.app.writeOne().then(() => setTimeout(done, 400));"""
# the answer at the top, once its report is there: JupyterLab makes the cells one scrolls to
SHOW = """
    document.querySelectorAll(".Toastify").forEach((e) => e.remove());
    const reports = [...document.querySelectorAll(".jp-OutputArea-output")];
    const report = reports.find((e) => e.innerText.includes(`hint("${arguments[0]}")`));
    const cell = report?.closest(".jp-Cell");
    if (cell) cell.previousElementSibling.scrollIntoView();
    else document.querySelector(".jp-WindowedPanel-outer")?.scrollBy(0, 300);
    return Boolean(cell);"""


def main(path: Path) -> None:
    kind, *language_part = path.name.split(".")[:-1]
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    with TemporaryDirectory() as name, speaking(*language_part or ["en"]):
        for flag in (*FLAGS, f"--user-data-dir={name}/chromium"):
            options.add_argument(flag)
        with webdriver.Chrome(options=options, service=service) as browser:
            {"look": film, "lab": lab}[kind](browser, Path(name), path)
    if path.stat().st_size > MOST[kind]:
        sys.exit(f"{path} has {path.stat().st_size} bytes, more than {MOST[kind]}")


def film(browser, folder, path):
    resize(browser, SIZE, 1)
    browser.set_script_timeout(60)
    browser.get(write(folder / "page").as_uri() + ADDRESS)
    while not browser.execute_script(READY):
        sleep(0.1)
    browser.execute_script(CUT)
    pictures, times = zip(*frames(browser), strict=True)
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=times, loop=3,
                     quality=60, method=6, minimize_size=True)  # fmt: skip


def frames(browser):
    """Yield pictures, each with its duration in milliseconds."""
    stations = browser.execute_script("return document.querySelectorAll('.station').length")
    for part in range(stations):
        browser.execute_async_script(GO, part)
        yield picture(browser, SIZE), 1500 if part in (0, stations - 1) else 700
    for number in range(TOKENS):
        browser.execute_async_script(WRITE)
        yield picture(browser, SIZE), 2000 if number == TOKENS - 1 else 220


def lab(browser, folder, path):
    """The notebook up to the wrong answer, executed, then opened in JupyterLab."""
    number, right, wrong = WRONG
    of, exercise = find_exercise(number)
    notebook = complete(of)
    ids = [cell.id for cell in notebook.cells]
    answer = notebook.cells[ids.index(exercise.answer_cell)]
    answer.source = answer.source.replace(right, wrong)
    whole, end = notebook.cells, ids.index(exercise.check_cell) + 1
    shutil.copytree(ROOT / "tinyllm", folder / "home" / "tinyllm")
    environment = {
        **os.environ, "PYTHONPATH": f"{folder / 'home'}:{ROOT}", "TINYLLM_LANG": language(),
        **{f"JUPYTER_{kind}_DIR": str(folder / kind) for kind in ("CONFIG", "DATA", "RUNTIME")},
    }  # fmt: skip
    notebook.cells = whole[:end]
    resources = {"metadata": {"path": str(folder / "home")}}
    NotebookClient(notebook, kernel_name="python3", resources=resources).execute(
        env=environment
    )
    notebook.cells = whole
    nbformat.write(notebook, folder / "home" / f"{of.name}.ipynb")
    trust = [sys.executable, "-m", "jupyter", "trust", f"{of.name}.ipynb"]
    subprocess.run(trust, cwd=folder / "home", env=environment, check=True)
    resize(browser, LAB_SIZE, 1.5)
    with jupyter(folder / "home", environment) as address:
        browser.get(f"{address}/lab/tree/{of.name}.ipynb")
        while not browser.execute_script(SHOW, number):
            sleep(0.5)
        sleep(5)
        browser.execute_script(SHOW, number)
        sleep(1)
        picture(browser, LAB_SIZE, LAB_SIZE[0]).save(path, quality=70, method=6)


@contextmanager
def jupyter(folder, environment):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", f"--ServerApp.port={port}"]
    command += [f"--ServerApp.root_dir={folder}", "--IdentityProvider.token=", "--allow-root"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as server:
        try:
            while True:
                with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                sleep(0.5)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def resize(browser, size, scale):
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": scale, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def picture(browser, size, width=WIDTH):
    image = Image.open(io.BytesIO(browser.get_screenshot_as_png())).convert("RGB")
    return image.resize((width, width * size[1] // size[0]), Image.Resampling.LANCZOS)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
