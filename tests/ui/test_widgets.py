"""Charts, tables and logs at the sizes they are for, in the page itself."""

# ruff: noqa: E501  (JavaScript in strings)

from typing import Any

import pytest

from tests.processes import wait_until
from tests.ui.conftest import Seen, Site, open_jobs
from tests.ui.playing import Page, expect

pytestmark = pytest.mark.slow


@pytest.fixture
def page(page: Page, site: Site) -> Page:
    return open_jobs(page, site)


def run(page: Page, code: str) -> Any:
    """JavaScript with `use("charts/scale.js")` to import a module and `main` to put things into."""
    body = f"""async () => {{
      const all = await import(document.querySelector('script[type=module]').src);
      const use = async (path) => all.use(`js/${{path}}`);
      const main = document.getElementById('main');
      {code}
    }}"""
    return page.evaluate(body)


def test_fewer_points_keep_every_spike_and_gap(page: Page) -> None:
    kept = run(
        page,
        """const { minMax, smooth, bestSoFar } = await use('charts/decimate.js');
        const xs = Array.from({length: 100000}, (_, i) => i), ys = xs.map(() => 1);
        ys[43210] = 99; ys[70001] = -5; ys[90000] = NaN;
        const found = minMax(xs, ys, {columns: 500});
        return {count: found.length, has: [43210, 70001, 90000, 0, 99999].map((i) => found.includes(i)),
          smooth: [...smooth([1, NaN, 3], 0.5)].map(String), best: [...bestSoFar([3, 1, 2])]};""",
    )

    assert kept["count"] <= 2500
    assert kept["has"] == [True] * 5
    assert kept["smooth"][1] == "NaN"
    assert kept["best"] == [3, 1, 1]


def test_numbers_and_times_read_as_people_write_them(page: Page) -> None:
    said = run(
        page,
        """const f = await use('core/format.js'), s = await use('charts/scale.js');
        return [f.number(0.00001234), f.number(1234567), f.number(0.21134), f.number('NaN'), f.number(null), f.duration(11580),
          f.bytes(5 << 20), f.ago(100, 100 + 7200), JSON.stringify(s.linearTicks(0, 10, 5)), JSON.stringify(s.logTicks(1e-5, 1, 5))];""",
    )

    assert said[:8] == ["1.23e−5", "1,234,567", "0.2113", "NaN", "–", "3 h 13 min", "5.00 MB", "2 h ago"]
    assert said[8:] == ["[0,2,4,6,8,10]", "[0.00001,0.0001,0.001,0.01,0.1,1]"]


def test_line_chart_zooms_by_drag_grows_and_is_saved_as_text(page: Page, seen: Seen) -> None:
    run(
        page,
        """const { lineChart } = await use('charts/line.js');
        const chart = window.chart = lineChart({name: 'loss', onZoom: (range) => { window.zoomed = range; }});
        const xs = Array.from({length: 200000}, (_, i) => i);
        chart.setSeries([{id: 'a', name: '<b>a</b>', xs, ys: xs.map((x) => 1 / (1 + x))}, {id: 'b', name: 'b', kind: 'validation', xs: [0], ys: [2]}]);
        chart.append('b', [0, 1000], [9, 0.5]);
        main.replaceChildren(chart.element, chart.legend, chart.saveButton());""",
    )
    canvas = page.locator("canvas")
    expect(canvas).to_have_attribute("aria-label", "loss: 2 lines over step, lowest 5e−6 in <b>a</b>.")
    box = canvas.bounding_box()
    assert box is not None

    page.mouse.move(box["x"] + 200, box["y"] + 100)
    expect(page.locator(".tip")).to_contain_text("<b>a</b>")
    page.mouse.down()
    page.mouse.move(box["x"] + 400, box["y"] + 100)
    page.mouse.up()
    wait_until(lambda: page.evaluate("window.zoomed"), what="the chart")

    low, high = page.evaluate("window.zoomed")
    assert 0 < low < high < 200_000
    assert page.evaluate("window.chart.series[1].ys") == [2, 0.5]  # what was there already came once
    picture = page.evaluate("window.chart.toSvg()")
    assert picture.startswith("<svg")
    assert "<b>" not in picture
    page.get_by_role("button", name="Save or view").click()
    page.get_by_role("menuitem", name="View as table").click()
    expect(page.get_by_role("dialog")).to_contain_text("The first 500 of 200002 rows")
    assert seen.errors == []


def test_brushing_keeps_the_trials_that_pass(page: Page) -> None:
    run(
        page,
        """const { parcoords } = await use('charts/parcoords.js');
        const rows = Array.from({length: 1000}, (_, i) => ({lr: 10 ** (-4 + 3 * i / 999), optimizer: i % 2 ? 'sgd' : 'adam', loss: i}));
        const chart = window.chart = parcoords({name: 'trials', onBrush: (ranges, kept) => { window.kept = kept.length; }});
        chart.setData({axes: [{id: 'lr', name: 'lr', log: true}, {id: 'optimizer', name: 'optimizer'}, {id: 'loss', name: 'loss'}], rows, color: 'loss', down: true});
        main.replaceChildren(chart.element);""",
    )
    wait_until(lambda: page.evaluate("window.chart.bounds"), what="the chart")
    box = page.locator("canvas").bounding_box()
    assert box is not None
    x, (top, bottom) = page.evaluate("[window.chart.axes[0].x, window.chart.bounds]")

    page.mouse.move(box["x"] + x, box["y"] + (top + bottom) / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + x, box["y"] + bottom + 5)
    page.mouse.up()

    wait_until(lambda: page.evaluate("window.kept"), what="the chart")
    assert 450 <= page.evaluate("window.kept") <= 550
    page.evaluate("window.chart.setBrush({optimizer: ['sgd']})")
    assert page.evaluate("window.chart.kept().length") == 500


def test_table_of_ten_thousand_rows_holds_a_few_and_sorts(page: Page) -> None:
    run(
        page,
        """const { vtable } = await use('widgets/vtable.js');
        const table = window.table = vtable({key: (row) => row.n, columns: [
          {id: 'n', title: 'Trial', num: true, value: (row) => row.n}, {id: 'loss', title: 'Loss', num: true, value: (row) => row.loss}]});
        table.element.style.height = '400px';
        main.replaceChildren(table.element);
        table.setRows(Array.from({length: 10000}, (_, i) => ({n: i, loss: i === 77 ? null : (i * 7919) % 10007})));""",
    )
    rows = page.locator(".vt-body .vt-row")
    expect(rows.first).to_be_visible()

    page.get_by_role("button", name="Loss").click()
    expect(rows.first).to_contain_text("0")
    assert page.evaluate("window.table.shown[9999].n") == 77  # what has no value is last
    assert "sort=loss" in page.url
    page.locator(".vtable").focus()
    page.keyboard.press("End")
    expect(page.locator(".vt-row.active")).to_contain_text("77")
    assert rows.count() < 40


def test_log_of_a_million_lines_does_not_move_under_the_reader(page: Page) -> None:
    run(
        page,
        """const { logview } = await use('widgets/logview.js');
        window.total = 1000000; window.reads = 0;
        const read = async (from, count) => { window.reads++; return {total: window.total, lines: Array.from({length: Math.min(count, window.total - from)},
          (_, i) => ({n: from + i + 1, text: `line ${from + i + 1} <b>`, level: 'INFO'}))}; };
        const view = window.view = logview({read});
        view.element.style.height = '400px';
        main.replaceChildren(view.element);
        await view.start();""",
    )
    expect(page.locator(".log-lines")).to_contain_text("line 1000000 <b>")  # it follows

    page.evaluate("window.view.goTo(499999)")
    line = page.locator('.log-line[data-n="500000"]')
    expect(line).to_be_visible()
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    before = line.bounding_box()
    page.evaluate(  # until it is drawn: lines are placed in the frame after
        """window.total = 1000300; window.view.grow(1000300);
        new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"""
    )
    expect(page.locator(".log-new")).to_have_text("↓ 300 new lines")
    after = line.bounding_box()
    assert before is not None
    assert after is not None
    assert abs(before["y"] - after["y"]) < 18  # a scaled bar may round by less than a line
    page.locator(".log-new").click()

    expect(page.locator(".log-lines")).to_contain_text("line 1000300")
    assert page.evaluate("window.reads") < 12
    assert page.locator(".log-line").count() < 120


def test_lines_stay_while_a_log_grows_faster_than_it_is_read(page: Page) -> None:
    run(
        page,
        """const { logview } = await use('widgets/logview.js');
        window.held = [];
        const made = (total) => ({total, lines: Array.from({length: total}, (_, i) => ({n: i + 1, text: `line ${i + 1}`}))});
        const read = (from, count) => count ? new Promise((done) => held.push((total) => done(made(total)))) : {total: 3, lines: []};
        window.answer = async (total) => { held.shift()(total); };
        const view = window.view = logview({read});
        view.element.style.height = '400px';
        main.replaceChildren(view.element);
        await view.start();""",
    )
    wait_until(lambda: page.evaluate("held.length"), what="the first question")
    page.evaluate("view.grow(5)")  # more came while the first answer was on its way
    page.evaluate("answer(3)")

    lines = page.locator(".log-lines")
    expect(lines).to_contain_text("line 3")
    first = page.evaluate("(window.first = document.querySelector('.log-line .tx').firstChild).data")
    wait_until(lambda: page.evaluate("held.length"), what="the second question")
    page.evaluate("answer(5)")
    expect(lines).to_contain_text("line 5")

    assert first == "line 1"
    assert page.evaluate("window.first.isConnected")  # who has marked a line keeps what is marked
