"""Film the page in which a model works: python benchmarks/film.py labkit/site/static/look.webp

One token goes through the whole model, station by station, then the story goes on. The pictures
are screenshots of the real page in headless Chromium (Debian: chromium chromium-driver; Python:
selenium and Pillow), so that the film shows the numbers that the page computes."""

import io
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep

from PIL import Image
from selenium import webdriver

from labkit.look.page import write

SIZE, WIDTH = (1280, 780), 960  # of the window and the film
MOST = 3 * 2**20  # bytes
TOKENS = 13  # that the model writes at the end
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
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


def main(path: Path) -> None:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in FLAGS:
        options.add_argument(flag)
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    with (
        TemporaryDirectory() as name,
        webdriver.Chrome(options=options, service=service) as browser,
    ):
        size = {"width": SIZE[0], "height": SIZE[1], "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.set_script_timeout(60)
        browser.get(write(name).as_uri() + ADDRESS)
        while not browser.execute_script(READY):
            sleep(0.1)
        browser.execute_script(CUT)
        frames = list(film(browser))
    pictures = [picture for picture, _ in frames]
    times = [time for _, time in frames]
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=times, loop=3,
                     quality=60, method=6, minimize_size=True)  # fmt: skip
    if path.stat().st_size > MOST:
        sys.exit(f"{path} has {path.stat().st_size} bytes, more than {MOST}")


def film(browser):
    """Yield pictures, each with its duration in milliseconds."""
    stations = browser.execute_script("return document.querySelectorAll('.station').length")
    for part in range(stations):
        browser.execute_async_script(GO, part)
        yield picture(browser), 1500 if part in (0, stations - 1) else 700
    for number in range(TOKENS):
        browser.execute_async_script(WRITE)
        yield picture(browser), 2000 if number == TOKENS - 1 else 220


def picture(browser):
    image = Image.open(io.BytesIO(browser.get_screenshot_as_png())).convert("RGB")
    return image.resize((WIDTH, WIDTH * SIZE[1] // SIZE[0]), Image.Resampling.LANCZOS)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
