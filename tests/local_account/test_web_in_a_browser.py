"""The account's web page in headless Chromium, on a phone, a tablet and a desk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from browser import Browser, browser
from test_web import BUCKET, Page

from sagemaker_local_account.account import LocalAccount

pytestmark = pytest.mark.soak

PHONE, TABLET, DESK = (390, 844), (900, 900), (1280, 900)
# Lighthouse's audit "Document doesn't use legible font sizes" takes 12 pixels as the least that is read without zooming.
LEAST_TEXT = 12
TEXTS = """
[...document.querySelectorAll("h1, h2, p, a, th, td, pre, svg text")].filter(it => it.textContent.trim())
    .map(it => [it.textContent, parseFloat(getComputedStyle(it).fontSize) * (it.ownerSVGElement ? it.getScreenCTM().d : 1)])
"""
# The graph may be wider than the window: it has a scroll bar of its own.
BOXES = """
[...document.querySelectorAll("body *:not(svg *, svg)")].map(it => [it.outerHTML, it.getBoundingClientRect()])
    .map(([text, box]) => [text, box.left, box.right])
"""
# A name that is broken into more than three lines is not read any more.
LINES = """
[...document.querySelectorAll("td")].map(it => {
    const range = document.createRange();
    range.selectNodeContents(it);
    return [it.textContent, new Set([...range.getClientRects()].map(box => Math.round(box.top))).size];
})
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with LocalAccount(state=tmp_path_factory.mktemp("account"), web=True) as account:
        yield Page(account)


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(params=["account", "stack", "execution", "job", "curve", "bucket"])
def address(request: pytest.FixtureRequest, page: Page) -> str:
    paths = {
        "account": "",
        "stack": "stack/us-east-1/Digits",
        "execution": f"execution/{quote(page.execution, safe='')}",
        "job": "job/us-east-1/one-job",
        "curve": "job/us-east-1/curved",
        "bucket": f"bucket/{BUCKET}",
    }
    return page.address.geturl() + paths[request.param]


@pytest.fixture(params=[PHONE, TABLET, DESK], ids=["phone", "tablet", "desk"])
def opened(request: pytest.FixtureRequest, tab: Browser, address: str) -> Browser:
    tab.open(address, *request.param)
    return tab


def of(tab: Browser, method: str) -> list[dict[str, Any]]:
    return [event["params"] for event in tab.events if event["method"] == method]


def test_a_page_requests_nothing_but_itself_and_is_there(opened: Browser, address: str) -> None:
    assert [it["request"]["url"] for it in of(opened, "Network.requestWillBeSent")] == [address]
    assert [it["response"]["status"] for it in of(opened, "Network.responseReceived")] == [200]


def test_a_page_has_no_error_and_breaks_no_rule_of_its_policy(opened: Browser) -> None:
    for event in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
        assert of(opened, event) == []
    assert opened.value("getComputedStyle(document.querySelector('header')).borderBottomStyle") == "solid"


def test_a_page_is_not_wider_than_its_window(opened: Browser) -> None:
    width = opened.value("document.documentElement.clientWidth")
    assert opened.value("document.documentElement.scrollWidth") <= width
    assert [box for box in opened.value(BOXES) if box[1] < 0 or box[2] > width] == []


def test_text_is_large_enough_to_read(opened: Browser) -> None:
    texts = opened.value(TEXTS)
    assert texts
    assert [it for it in texts if it[1] < LEAST_TEXT] == []


def test_names_and_times_are_not_broken_into_pieces(opened: Browser) -> None:
    assert [it for it in opened.value(LINES) if it[1] > 3] == []


# Words that browsers break only where `overflow-wrap: anywhere` lets them: statuses and times in lists.
BROKEN = """
[...document.querySelectorAll(".list td:not(:first-child)")].flatMap(it => {
    const texts = document.createTreeWalker(it, NodeFilter.SHOW_TEXT), range = document.createRange(), found = [];
    while (texts.nextNode()) {
        range.selectNodeContents(texts.currentNode);
        if (range.getClientRects().length > 1) found.push(texts.currentNode.textContent);
    }
    return found;
})
"""


@pytest.mark.parametrize("width", [900, 1280])
def test_statuses_and_times_of_lists_are_in_one_line(tab: Browser, page: Page, width: int) -> None:
    tab.open(page.address.geturl(), width, 900)
    assert tab.value(BROKEN) == []


def test_a_curve_is_as_wide_as_its_window_lets_it_and_its_labels_are_within(opened: Browser) -> None:
    boxes = opened.value(
        "[...document.querySelectorAll('svg.curve text')].map(it => [it.getBoundingClientRect().left, "
        "it.ownerSVGElement.getBoundingClientRect().left])"
    )
    assert [box for box in boxes if box[0] < box[1]] == []
