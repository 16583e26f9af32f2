# SPDX-License-Identifier: Apache-2.0
"""The page of `render --html` in a real browser: its words are those of the window, its shares those of the SVG; the
mouse, the wheel and keys do what they do in the window; no request leaves the file; sizes from a telephone to a wall.
usage: page_test.py REHEARSE [FOLDER], which gets a picture of each size"""
import re
import statistics
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import browser  # noqa: E402

rehearse = sys.argv[1]
if browser.found() is None:
    print("SKIPPED: no chromium here")
    sys.exit(77)
folder = tempfile.TemporaryDirectory()
work = Path(folder.name)
failures = []


def hold(truth: bool, what: str) -> None:
    if not truth:
        failures.append(what)


def run(*arguments: object) -> str:
    done = subprocess.run([rehearse, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        if "this build has no page" in done.stderr:
            print("SKIPPED: " + done.stderr.strip())
            sys.exit(77)
        sys.exit(f"{arguments}: {done.stderr}")
    return done.stdout


def words(svg: Path) -> list[str]:
    return sorted("".join(text.itertext()) for text in xml.parse(svg).iter("{http://www.w3.org/2000/svg}text"))


report = run("simulate", "3d-8-gpus", "--trace", work / "step.trace")
(work / "report.txt").write_text(report)
run("simulate", "3d-8-gpus", "--set", "plan.schedule=gpipe", "--trace", work / "other.trace")
run("render", work / "step.trace", "--html", work / "page.html", "--report", work / "report.txt")
run("render", work / "step.trace", work / "other.trace", "--html", work / "two.html")
run("render", work / "step.trace", "--svg", work / "step.svg")
READY = "globalThis.rehearsePage && rehearsePage.ready === true"
page = browser.Browser(1440, 900)
try:
    page.open((work / "page.html").as_uri(), READY)
    texts = page.evaluate("rehearsePage.texts()")
    run("view", work / "step.trace", "--svg", work / "window.svg", "--width", 1440, "--height", 900)
    hold(sorted(text for text in texts if text) == [text for text in words(work / "window.svg") if text],
         "the page's words are not the window's")

    legend = [word for word in words(work / "step.svg") if re.fullmatch(r".+ \d+\.\d %", word)]
    hold(len(legend) > 4, "the SVG's legend has no shares")
    hold(set(legend) <= set(texts), f"shares differ: {sorted(set(legend) - set(texts))}")

    # A tooltip: an op under the mouse is said.
    for y in range(80, 300, 10):
        page.mouse("mouseMoved", 700, y)
        page.frame()
        told = set(page.evaluate("rehearsePage.texts()")) - set(texts)
        if told:
            break
    hold(bool(told), "nothing under the mouse is said")

    # A click tells of the op; a key shows the times of kinds.
    page.mouse("mousePressed", 700, y, button="left", clickCount=1)
    page.mouse("mouseReleased", 700, y, button="left", clickCount=1)
    page.frame()
    hold("Click an op or a bubble." not in page.evaluate("rehearsePage.texts()"), "a click chooses nothing")
    page.key("Escape")
    page.key("t", "t")
    page.frame()
    hold("OPTIMIZER_STEP" in page.evaluate("rehearsePage.texts()"), "the key T shows no statistics")
    page.key("t", "t")
    page.frame()

    # Zoom with the wheel, back with the key that shows all.
    whole = page.evaluate("rehearsePage.texts()")
    page.mouse("mouseWheel", 700, 140, deltaX=0, deltaY=-300, modifiers=2)
    page.frame()
    hold(page.evaluate("rehearsePage.texts()") != whole, "the wheel does not zoom")
    page.key("Home")
    page.frame()

    # The report, as it was printed.
    hold(page.evaluate("document.querySelector('details pre').textContent") == report, "the report is not what simulate printed")

    # Frames while a person drags: the median.
    page.evaluate("rehearsePage.frames.length = 0")
    for step in range(40):
        page.mouse("mouseWheel", 500 + 5 * step, 140, deltaX=0, deltaY=-40, modifiers=2)
        page.frame()
    frames = page.evaluate("rehearsePage.frames.map(one => one.core + one.canvas)")
    print(f"frames: {len(frames)}, median {statistics.median(frames):.1f} ms")

    for width, height, scale in ((390, 844, 3), (1440, 900, 1), (3840, 2160, 1)):
        page.size(width, height, scale)
        page.open((work / "page.html").as_uri(), READY)
        hold(page.evaluate("[document.querySelector('canvas').width, document.querySelector('canvas').height]") ==
             [width * scale, height * scale], f"{width} x {height}: the canvas has another size")
        hold(len(page.evaluate("rehearsePage.texts()")) > 5, f"{width} x {height}: nothing is drawn")
        if len(sys.argv) > 2:  # pictures for people
            (Path(sys.argv[2]) / f"page-{width}.png").write_bytes(page.picture())

    page.size(1440, 900)
    page.open((work / "two.html").as_uri(), READY)
    both = " ".join(page.evaluate("rehearsePage.texts()"))
    run("view", work / "step.trace", work / "other.trace", "--svg", work / "both.svg", "--width", 1440, "--height", 900)
    hold(sorted(text for text in page.evaluate("rehearsePage.texts()") if text) == [text for text in words(work / "both.svg") if text],
         "two traces: the page's words are not the window's")
    hold(bool(both), "two traces: nothing is drawn")

    # The causes from one step to the other came with the page; the map of ranks is the window's.
    for key, does in (("e", "key E"), ("y", "key E\nkey Y")):
        page.key(key, key)
        page.frame()
        (work / "script").write_text(does + "\n")
        run("view", work / "step.trace", work / "other.trace", "--script", work / "script", "--svg", work / "both.svg", "--width", 1440, "--height", 900)
        hold(sorted(text for text in page.evaluate("rehearsePage.texts()") if text) == [text for text in words(work / "both.svg") if text],
             f"two traces: behind the key {key} the page's words are not the window's")
        hold("from the first step to the second" in page.evaluate("rehearsePage.texts()"), f"behind the key {key} there are no causes")

    asked = [url for url in page.requests() if not url.startswith(("file:", "about:", "data:", "blob:"))]
    hold(not asked, f"the page asks for {asked}")
finally:
    page.close()
for failure in failures:
    print(failure)
sys.exit(bool(failures))
