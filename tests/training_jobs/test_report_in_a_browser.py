"""The page that `training-jobs report` writes, in headless Chromium, on a phone, a tablet and a desk."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, browser
from test_report import CREATED, shown

from training_jobs.cli.charts import COLORS
from training_jobs.cli.report import page

pytestmark = pytest.mark.soak

PHONE, TABLET, DESK = (360, 740), (660, 900), (1280, 900)
PHASES = ("Starting", "LaunchingMLInstances", "Downloading", "Training", "Uploading")
# Lighthouse's audit "Document doesn't use legible font sizes" takes 12 pixels as the least that is read without zooming.
LEAST_TEXT = 12
HEIGHTS = """
[...document.querySelectorAll(%r)].map(element => {
    const scale = element.ownerSVGElement ? element.getScreenCTM().d : 1;
    return parseFloat(getComputedStyle(element).fontSize) * scale;
})
"""
BOXES = """
[...document.querySelectorAll("svg, svg text, rect, polyline, td, th")].map(element => {
    const box = element.getBoundingClientRect();
    return [element.tagName, element.textContent, box.left, box.right, box.width, box.height];
})
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of two jobs with long names, whose last lines try to load and to run what they name."""
    transitions = [
        {
            "Status": status,
            "StartTime": CREATED + timedelta(seconds=number * 20),
            "EndTime": CREATED + timedelta(seconds=number * 20 + 20),
        }
        for number, status in enumerate(PHASES)
    ]
    jobs = [
        shown(
            f"digits-2026-01-31-{hour}-00-00-000",
            [3 * math.exp(-step / 20) + wave * math.sin(step) for step in range(100)],
            HyperParameters={"sagemaker_submit_directory": f"s3://bucket/{'long/' * 30}sourcedir.tar.gz"},
            SecondaryStatusTransitions=transitions,
        )
        for hour, wave in ((10, 0.1), (11, 0.2))
    ]
    for one in jobs:
        one.lines[0] = type(one.lines[0])(CREATED, "algo-1", "<img src=https://example.com/x.png onerror=alert(1)>" * 5)
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page(jobs))
    return path


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(params=[PHONE, TABLET, DESK], ids=["phone", "tablet", "desk"])
def opened(request: pytest.FixtureRequest, tab: Browser, file: Path) -> Browser:
    tab.open(file, *request.param)
    return tab


def of(tab: Browser, method: str) -> list[dict[str, Any]]:
    return [event["params"] for event in tab.events if event["method"] == method]


def test_a_page_requests_nothing_but_itself(opened: Browser, file: Path) -> None:
    assert [it["request"]["url"] for it in of(opened, "Network.requestWillBeSent")] == [file.as_uri()]


def test_a_page_has_no_error(opened: Browser) -> None:
    assert of(opened, "Runtime.exceptionThrown") == []
    assert of(opened, "Runtime.consoleAPICalled") == []
    assert of(opened, "Log.entryAdded") == []


def test_a_page_is_not_wider_than_its_window(opened: Browser) -> None:
    width = opened.value("document.documentElement.clientWidth")
    assert opened.value("document.documentElement.scrollWidth") <= width
    boxes = opened.value(BOXES)
    assert [box for box in boxes if box[2] < 0 or box[3] > width] == []


def test_charts_and_their_labels_are_visible(opened: Browser) -> None:
    boxes = opened.value(BOXES)
    assert [box[0] for box in boxes if box[0] == "svg"] == ["svg"] * 3
    assert [box for box in boxes if box[4] <= 0 or box[5] <= 0] == []
    drawn = opened.value("[...document.querySelectorAll('polyline')].map(it => getComputedStyle(it).stroke)")
    assert drawn == [f"rgb({int(it[1:3], 16)}, {int(it[3:5], 16)}, {int(it[5:], 16)})" for it in COLORS[:2]]
    named = opened.value("[...document.querySelectorAll('figcaption b[class]')].map(it => getComputedStyle(it).color)")
    assert named == drawn


def test_text_is_large_enough_to_read(opened: Browser) -> None:
    assert min(opened.value(HEIGHTS % "svg text, td, th, pre, figcaption, h1, h2")) >= LEAST_TEXT
