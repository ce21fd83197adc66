"""Pages of the site in headless Chromium, on a desk and on a phone; $SITE_PICTURES is a folder for their pictures."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, browser

pytestmark = pytest.mark.soak

ROOT = Path(__file__).parents[2]
SIZES = {"desk": (1280, 900), "phone": (390, 800)}
PAGES = ["index.html", "concepts.html", "examples.html", "how-to.html", "reference.html"]
# Elements that reach beyond the window, but for those in a box that scrolls by itself, such as wide tables and code.
BEYOND = """
[...document.querySelectorAll("article *")].filter(element => {
    for (let one = element; one; one = one.parentElement)
        if (["auto", "scroll", "hidden"].includes(getComputedStyle(one).overflowX)) return false;
    return element.getBoundingClientRect().right > innerWidth + 1;
}).map(element => element.tagName + " " + element.textContent.slice(0, 60))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True)
    return folder


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_fits_the_window_and_loads_without_an_error(page: str, size: str, site: Path, tab: Browser) -> None:
    width, height = SIZES[size]
    tab.open(site / page, width, height)
    assert tab.value(BEYOND) == []
    assert tab.value("document.documentElement.scrollWidth <= innerWidth")
    assert tab.value("[...document.images].filter(one => !one.complete || !one.naturalWidth).map(one => one.src)") == []
    failed = [event for event in tab.events if event["method"] in ("Network.loadingFailed", "Runtime.exceptionThrown")]
    assert failed == []
    picture = base64.b64decode(tab.call("Page.captureScreenshot", format="png")["data"])
    assert int.from_bytes(picture[16:20], "big") == width
    if folder := os.environ.get("SITE_PICTURES"):
        Path(folder, f"{Path(page).stem}-{size}.png").write_bytes(picture)
