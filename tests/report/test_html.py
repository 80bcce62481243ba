"""The page: what it holds, that it stays closed to the text of the files, and that its scripts run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from gpulint import Settings, check
from gpulint.report import registry
from gpulint.report.html import html
from gpulint.run import whatif
from gpulint.run.overview import Card, Field, cards
from gpulint.run.whatif import Axis, Grid

VOID = {"meta", "input", "br", "img", "link"}


class Tags(HTMLParser):
    """Checks that tags close in order; collects tags and scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)
        assert not any(name in ("src", "href") for name, _ in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parsed(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    return tags


@pytest.fixture(scope="module")
def page(root) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setattr(whatif, "GRID_STEPS", 250_000)
        settings = Settings(gpu="h100-80gb", gpus=1)
        report = check(["examples/llama3-8b-qlora.yaml", "examples/llama3-8b-full.yaml"], settings)
        return html.render(report, cards(report, settings), "0.1.0")


def card_of(estimate, text: str = "x.yaml") -> Card:
    grid = Grid((Axis("micro batch size", ("1", "2"), ({}, {}), 0),), {(0,): estimate, (1,): None})
    return Card(text, text, "axolotl", "training", (Field(text, text, text),), estimate, "", grid)


def test_the_page_is_whole_and_loads_nothing(page):
    tags = parsed(page)
    assert tags.seen.count("section") >= 3
    assert "http://" not in page
    assert "https://" not in page.replace("https://github.com", "")


def test_every_colour_of_a_bar_is_in_the_legend(page):
    whole = page[: page.index("What if")]
    bars = set(re.findall(r"background:var\(--(\w+)\)", whole))
    assert {"activations", "logits"} <= bars <= set(re.findall(r"--own:var\(--(\w+)\)", whole))


def test_jobs_findings_and_origins_are_there(page):
    assert "examples/llama3-8b-full.yaml" in page
    assert "does not fit" in page
    assert "optimizer-states-exceed-gpu" in page
    assert "<code>optimizer.name</code>" in page
    assert page.index("Findings in examples/llama3-8b-full.yaml") > page.index('id="job-1"')


def test_every_position_of_the_sliders_is_an_estimate_or_refused(page):
    for text in re.findall(r'<script type="application/json">(.*?)</script>', page):
        data = json.loads(text)
        places = 1
        for labels in data["labels"]:
            places *= len(labels)
        assert 0 < len(data["points"]) + len(data["refused"]) <= places
        for point in data["points"].values():
            assert len(point["parts"]) == len(data["components"])
            assert point["low"] <= point["process"] <= point["high"]


def test_a_larger_micro_batch_never_needs_less(page):
    data = json.loads(re.findall(r'<script type="application/json">(.*?)</script>', page)[0])
    for place, point in data["points"].items():
        batch, *rest = map(int, place.split(","))
        larger = data["points"].get(",".join(map(str, (batch + 1, *rest))))
        assert larger is None or larger["process"] >= point["process"]


@pytest.mark.parametrize("text", ["</script><script>alert(1)</script>", '"><img onerror=x>', "\x1b[31m\u202e", "a&b"])
def test_hostile_text_stays_text(report, estimate, text):
    page = html.render(report, [card_of(estimate, text)], "0.1.0")
    parsed(page)
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "\x1b" not in page


def test_secrets_are_masked(report, estimate):
    assert "hf_abc" not in registry.render(
        "html", report, registry.Context("0", False, False, 0, False, list, lambda: [card_of(estimate)])
    )


def test_scripts_run_in_a_browser(page, tmp_path):
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium on this machine")
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
    done = subprocess.run(
        [browser, *flags, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", f"file://{tmp_path / 'page.html'}"],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    told = re.findall(r'<p class="told (\w+)" aria-live="polite">([^<]+)</p>', done.stdout)
    assert [verdict for verdict, _ in told] == ["fits", "exceeds"]
    assert all(re.search(r"\d GiB \(", text) for _, text in told)
