"""`report.html` in a real browser: drawn, readable, usable, at both widths and in both themes."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.report.page import write_page
from tests.report import traces

BROWSER = next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None or DRIVER is None, reason="needs Chromium and chromedriver"),
]

UNREADABLE = """
const light = (c) => { const [r, g, b] = c.map((v) => v / 255).map((v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b; };
const rgb = (words) => words.match(/[\\d.]+/g).map(Number);
const found = [];
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const element = walk.currentNode.parentElement;
  if (!walk.currentNode.data.trim() || !element.getClientRects().length || element.closest("svg, :disabled")) continue;
  let behind = element;
  while (behind && (rgb(getComputedStyle(behind).backgroundColor)[3] ?? 1) === 0) behind = behind.parentElement;
  const a = light(rgb(getComputedStyle(element).color)), b = light(rgb(getComputedStyle(behind || document.body).backgroundColor));
  const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  if (ratio < 4.5) found.push([walk.currentNode.data.trim().slice(0, 40), ratio]);
}
return found;
"""  # noqa: E501

WIDER = """
return [...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 0.5
  && !e.closest("svg")).map((e) => `${e.tagName}.${e.className}`);
"""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


class Page:
    """A report that lies open."""

    def __init__(self, driver: Any, path: Path):
        self.driver, self.path = driver, path

    def show(self, width: int = 1280, dark: bool = False) -> None:
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.driver.get(self.path.as_uri())
        self.settle()

    def settle(self) -> None:
        """Wait until what is due to be drawn is drawn."""
        frames = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()))"
        self.driver.execute_async_script(frames)

    def run(self, script: str) -> Any:
        return self.driver.execute_script(script)

    def all(self, css: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", css))

    def one(self, css: str) -> Any:
        return self.driver.find_element("css selector", css)

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def ticks(self, chart: str) -> list[str]:
        return [text.text for text in self.all(f"#plot-{chart} svg text") if text.text]


@pytest.fixture
def opened(chromium: Any, tmp_path: Path) -> Any:
    def open_page(trace: Any, verdict: Any, width: int = 1280, dark: bool = False, language: Any = "en") -> Page:
        write_page(trace, verdict, tmp_path / "report.html", language)
        made = Page(chromium, tmp_path / "report.html")
        made.complaints()
        made.show(width, dark)
        return made

    return open_page


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("ill", [False, True])
def test_the_page_looks_right(opened: Any, width: int, dark: bool, ill: bool) -> None:
    case = (traces.broken(), traces.stop()) if ill else (traces.healthy(), traces.verdict())
    page = opened(*case, width, dark)
    word = page.one(".hero .word")
    assert word.text == ("STOP" if ill else "CHANGE") and word.rect["height"] >= 40
    for element in (word, page.one("h1"), *page.all(".chip")):
        assert element.is_displayed() and element.rect["y"] + element.rect["height"] < 800, "in the first view"
    page.run("document.querySelectorAll('details').forEach((d) => d.open = true)")
    page.settle()
    assert page.run("return document.documentElement.scrollWidth") == width and page.run(WIDER) == []
    drawn = page.run(
        "return Charts.plots.map((p) => [p.spec.key, p.box.querySelectorAll('path.line, path.dots').length])"
    )
    assert len(drawn) == 11 and all(n > 0 for _, n in drawn), drawn
    assert page.run(UNREADABLE) == []
    assert page.run("return performance.getEntriesByType('resource').length") == 0
    assert page.complaints() == []
    black = page.run("return getComputedStyle(document.body).backgroundColor")
    assert (max(int(x) for x in black.strip("rgb()").split(",")) < 80) is dark


def test_a_name_without_a_place_to_break_does_not_widen_the_page(opened: Any) -> None:
    long = "x" * 120
    trace = dataclasses.replace(traces.healthy(), path=Path(long), sources={long: traces.healthy().loss})
    page = opened(trace, traces.verdict(do=(long,), tool=long, numbers={long: long}), width=400)
    assert page.run("return document.documentElement.scrollWidth") == 400 and page.run(WIDER) == []


def test_switches_of_scale_and_language(opened: Any) -> None:
    page = opened(traces.healthy(), traces.verdict())
    linear = page.ticks("loss")
    curve = page.one("#plot-loss path.smooth").get_attribute("d")
    page.one("#plot-loss .scale button:last-child").click()
    assert page.one("#plot-loss .scale button:last-child").get_attribute("aria-pressed") == "true"
    assert page.one("#plot-loss path.smooth").get_attribute("d") != curve
    page.one("#plot-loss .scale button:first-child").click()
    assert page.ticks("loss") == linear and page.one("#plot-loss path.smooth").get_attribute("d") == curve
    assert not page.all("#plot-replay .scale"), "differences have no logarithm"
    assert "学习率" not in page.one("main").text
    page.one("#language").click()
    assert page.one(".hero .word").text == "修改" and "学习率" in page.one("#plot-learning_rate h3").text
    assert "learning rate low" not in page.one("main").text and "步" in page.ticks("loss")
    assert page.run("return document.documentElement.lang") == "zh-CN"
    page.one("#language").click()
    assert page.one(".hero .word").text == "CHANGE" and page.complaints() == []


def test_hover_tells_the_values_of_all_charts_and_zoom_is_shared(opened: Any) -> None:
    from selenium.webdriver import ActionChains

    trace = traces.healthy()
    page = opened(trace, traces.verdict())
    svg = page.one("#plot-loss svg")
    page.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", svg)
    whole = page.ticks("grad_norm")
    ActionChains(page.driver).move_to_element(svg).perform()
    page.settle()
    step = page.run("return Charts.view.at")
    assert 200 < step < 260 and page.one("#where").text.startswith(f"step {step}")
    shown = float(page.one("#plot-loss .legend .reading").text)
    assert shown == pytest.approx(trace.loss.values[step - 1], rel=1e-8)
    norm = float(page.one("#plot-grad_norm .legend .reading").text)
    assert norm == pytest.approx(trace.grad_norm.values[step - 1], rel=1e-8)
    assert page.run("return document.querySelectorAll('svg .cursor').length") == 11
    drag = ActionChains(page.driver).move_to_element(svg).click_and_hold()
    drag.move_by_offset(100, 0).move_by_offset(100, 0).release().perform()
    page.settle()
    low, high = page.run("return [Charts.view.from, Charts.view.to]")
    assert 200 < low < 260 and 60 < high - low < 120
    assert page.ticks("grad_norm") != whole and page.one("#reset").is_enabled()
    page.one("#reset").click()
    page.settle()
    assert page.ticks("grad_norm") == whole and not page.one("#reset").is_enabled()
    page.one("#plot-loss .legend button").click()
    assert not page.all("#plot-loss path.faint"), "the raw line is hidden"
    assert page.complaints() == []


def test_evidence_leads_to_its_step_and_commands_are_copied(opened: Any) -> None:
    page = opened(traces.healthy(), traces.verdict())
    page.one(".evidence .go").click()
    page.settle()
    assert page.run("return Charts.view.at") == 212 and page.run("return Charts.view.to - Charts.view.from") < 30
    assert "rows 88 and 1041" in page.one("#where").text
    button = page.one(".copy")
    page.run("window.copied = null; document.addEventListener('copy', () => { copied = String(getSelection()); })")
    page.run("Object.defineProperty(navigator, 'clipboard', {value: {writeText: async (w) => { copied = w; }}})")
    button.click()
    page.settle()
    assert page.run("return copied").splitlines() == [
        "python -m runner cure outputs/qwen14b_lora/2026-12-01_10-00-00", "optim.learning_rate=1e-4 precision=bf16",
    ]  # fmt: skip


def test_values_that_are_not_finite_are_marks_at_the_top(opened: Any) -> None:
    page = opened(traces.broken(), traces.stop())
    assert page.all("#plot-loss .nonfinite") and page.all("#plot-grad_norm .nonfinite")
    assert "160 not finite, first at step 141" in page.one("#plot-loss .legend").text
    page.run("Charts.mark(200)")
    page.settle()
    assert page.one("#plot-loss .legend .reading").text == "NaN (141–300)"


@pytest.mark.parametrize("case", ["none", "one", "eval", "nan", "hundred thousand"])
def test_odd_logs_draw_without_an_error(opened: Any, case: str) -> None:
    trace, charts = {
        "none": lambda: (traces.foreign(0), 0),
        "one": lambda: (traces.foreign(1), 3),
        "eval": lambda: (traces.eval_only(), 1),
        "nan": lambda: (dataclasses.replace(traces.foreign(20), loss=traces.known([float("nan")] * 20)), 3),
        "hundred thousand": lambda: (traces.healthy(100_000), 11),
    }[case]()
    page = opened(trace, traces.verdict(), language="zh")
    assert page.run("return Charts.plots.length") == charts == len(page.all("figure.plot"))
    assert page.one(".hero .word").text == "修改" and page.complaints() == []
    for script in ("Charts.zoom(3, 9)", "Charts.reset()", "Charts.mark(5)"):
        page.run(script)
        page.settle()
    assert page.complaints() == []
