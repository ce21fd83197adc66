"""The documentation's site, as mkdocs builds it (`make site`)."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import cdk_sagemaker_training

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; a broken link or anchor, a page that no menu has and a docstring that cannot be read are errors."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_the_reference_has_every_public_name(site: Path) -> None:
    page = (site / "reference.html").read_text()
    described = {name.rsplit(".", 1)[1] for name in re.findall(r'id="(cdk_sagemaker_training\.[\w.]+)"', page)}
    assert {name for name in cdk_sagemaker_training.__all__ if name not in described} == set()


class _Loaded(HTMLParser):
    """The addresses that a browser loads with a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("script", "img", "iframe"):
            self.addresses.append(given.get("src") or "")
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preconnect"):
            self.addresses.append(given.get("href") or "")


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    parser = _Loaded()
    pages = list(site.rglob("*.html"))
    for page in pages:
        parser.feed(page.read_text())
    assert len(pages) > 20
    assert [address for address in parser.addresses if re.match(r"(\w+:)?//", address)] == []


def test_no_link_leads_to_a_file_that_the_site_has_not(site: Path) -> None:
    missing = []
    for page in site.rglob("*.html"):
        for target in re.findall(r'<a [^>]*href="([^"#]+)', page.read_text()):
            if page.name != "404.html" and not re.match(r"\w+:", target) and not (page.parent / target).exists():
                missing.append(f"{page.name}: {target}")
    assert missing == []


def test_the_pages_that_are_written_by_hand_have_at_most_30000_words() -> None:
    listed = subprocess.run(
        [sys.executable, ROOT / "docs" / "count_words.py"], capture_output=True, text=True, check=True
    )
    assert int(listed.stdout.split()[-3].replace(",", "")) <= 30_000
