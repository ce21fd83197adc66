"""The page that `training-jobs report` writes, of descriptions as DescribeTrainingJob gives them."""

import math
import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

from training_jobs import LogLine
from training_jobs.cli.charts import line_chart
from training_jobs.cli.report import Shown, page

CREATED = datetime(2026, 1, 31, 12, tzinfo=UTC)


def shown(name: str, loss: list[float], **members: Any) -> Shown:
    job = {
        "TrainingJobName": name,
        "TrainingJobStatus": "Completed",
        "SecondaryStatus": "Completed",
        "CreationTime": CREATED,
        "BillableTimeInSeconds": 60,
        "ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 2, "VolumeSizeInGB": 30},
        "SecondaryStatusTransitions": [
            {"Status": "Training", "StartTime": CREATED, "EndTime": CREATED + timedelta(seconds=60)},
            {"Status": "Completed", "StartTime": CREATED + timedelta(seconds=60)},
        ],
        **members,
    }
    points = [(float(second), value) for second, value in enumerate(loss)]
    return Shown(job, {"loss": points}, [LogLine(CREATED, "algo-1", "<script>alert(1)</script>")])


class Elements(HTMLParser):
    """The tags of a page, with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += f"{data}\n"

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def test_a_page_refers_to_nothing_outside_of_itself_and_has_no_script() -> None:
    text = page([shown("digits-1", [3.0, 1.0])])
    elements = Elements(text)
    assert not {"script", "link", "img", "iframe", "object", "a"} & {tag for tag, _ in elements.found}
    assert not {"src", "href", "onload", "style"} & {name for _, attributes in elements.found for name in attributes}
    assert "url(" not in text
    assert "@import" not in text
    [policy] = [it["content"] for it in elements.of("meta") if it.get("http-equiv") == "Content-Security-Policy"]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    assert "<script>alert(1)</script>" in elements.words


def test_a_page_shows_result_metrics_phases_and_lines() -> None:
    elements = Elements(page([shown("digits-1", [3.0, 1.0], FailureReason="why not")]))
    for words in ("digits-1", "2 x ml.m5.xlarge: 1 min 00 s", "why not", "loss: 1", "Training, 1 min 00 s"):
        assert words in " ".join(elements.words.split())
    assert len(elements.of("svg")) == 2
    assert len(elements.of("polyline")) == 1


def test_two_jobs_share_a_chart_and_rows_that_differ_are_marked() -> None:
    two = [
        shown(name, [3.0, last], HyperParameters={"seed": name, "epochs": "3"}) for name, last in (("a", 1), ("b", 2))
    ]
    text = page(two)
    assert len(Elements(text).of("polyline")) == 2
    assert '<tr class="differs"><th>hyperparameter seed</th><td>a</td><td>b</td></tr>' in text
    assert "<tr><th>hyperparameter epochs</th><td>3</td><td>3</td></tr>" in text


def test_a_chart_leaves_out_what_is_not_finite_and_stays_within_its_picture() -> None:
    chart = Elements(line_chart("loss", {"a": [(0.0, 5.0), (1.0, math.nan), (2.0, math.inf), (3.0, -5.0)]}))
    [line] = chart.of("polyline")
    points = [tuple(map(float, point.split(","))) for point in str(line["points"]).split()]
    assert len({*points}) == 2
    assert all(0 <= x <= 640 and 0 <= y <= 200 for x, y in points)
    assert points[0][1] < points[1][1]


def test_a_metric_without_values_has_no_chart() -> None:
    assert "no values" in line_chart("loss", {"a": [(0.0, math.nan)]})


def test_a_chart_begins_with_its_first_value() -> None:
    chart = line_chart("loss", {"a": [(60.0, 2.0), (90.0, 1.0)]})
    [line] = Elements(chart).of("polyline")
    assert str(line["points"]).startswith("92.0,8.0 ")
    assert ">1 min 00 s</text>" in chart
    assert ">1 min 30 s</text>" in chart


def test_the_axis_of_a_short_chart_has_tenths_and_that_of_one_moment_one_end() -> None:
    short = line_chart("loss", {"a": [(3.61, 2.0), (3.74, 1.0)]})
    at_once = line_chart("loss", {"a": [(3.61, 2.0)], "b": [(3.61, 2.0)]})
    assert re.findall(r">([^<]+)</text>", short) == ["2", "1", "3.6 s", "3.7 s"]
    assert re.findall(r">([^<]+)</text>", at_once) == ["2", "3.6 s"]


def test_a_single_value_is_said_with_its_time_and_not_drawn() -> None:
    alone = line_chart("accuracy", {"a": [(60.0, 0.9)]}, named=False)
    assert alone == "<figure><figcaption>accuracy: <b>0.9</b> at 1 min 00 s</figcaption></figure>"


def test_a_single_value_beside_another_is_a_dot() -> None:
    [line, _] = Elements(line_chart("accuracy", {"a": [(60.0, 0.9)], "b": [(70.0, 0.8)]})).of("polyline")
    assert (line["stroke-linecap"], line["stroke-width"], line["points"]) == ("round", "8", "92.0,8.0 92.0,8.0")
