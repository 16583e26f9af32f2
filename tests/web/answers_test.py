# SPDX-License-Identifier: Apache-2.0
"""The page that answers, in a real browser: its answers are the command's, byte for byte but for wall times, exit codes and
words on standard error too; a question in the address is answered when the page is opened; nothing is fetched.
usage: answers_test.py REHEARSE PAGE [PICTURE]"""
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/viz/page"))
import browser  # noqa: E402

rehearse, html = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
for absent, reason in ((not html.exists(), "the page that answers is not built here: ./run page"),
                       (html.exists() and html.stat().st_mtime < rehearse.stat().st_mtime,
                        "the page that answers is older than the command: ./run page"),
                       (browser.found() is None, "no chromium here")):
    if absent:
        print("SKIPPED: " + reason)
        sys.exit(77)

QUESTIONS = [["simulate", path.stem, "--json"] for path in sorted((ROOT / "scenarios").glob("*.json"))]
QUESTIONS += [line.split() for line in """
    plan llama3-8b --gpus 16 --on dgx-h100 --json
    plan llama3-8b --gpus 16 --on h100 --json
    plan gpt2-774m --gpus 1 --on dgx1-v100-32gb --sequence-length 1024 --global-batch 8 --json
    plan llama3-70b --gpus 8 --on dgx-a100-80gb --json
    plan mixtral-8x7b --gpus 64 --on dgx-h100 --set plan.tensor_parallel=1 --set plan.pipeline_parallel=4 --json
    plan llama3-8b --gpus 32 --on dgx-h100 --for torchtitan --json
    plan llama3-8b --gpus 16 --on dgx-h100 --for deepspeed --set plan.tensor_parallel=1 --json
    plan llama3-8b --gpus 8 --on dgx-h100
    simulate gpt3-175b-1024 --set plan.micro_batch=2 --json
    simulate gpt3-175b-1024 --cluster aws-p4d-24xlarge --json
    simulate gpt3-175b-1024 --set plan.schedule=zb_h1 --json
    simulate 3d-8-gpus --set plan.schedule=gpipe --json
    simulate dp-zero3 --set plan.zero_stage=2 --json
    simulate dp-zero3 --sweep plan.data_parallel=2,4,8 --set gpus=null --set plan.global_batch=64 --json
    simulate gpt3-175b-1024 --set plan.tensor_parallel=5 --json
    simulate nowhere --json
    plan llama3-8b --gpus 0 --on dgx-h100
    plan llama3 --gpus 8 --on dgx-h100 --json
""".strip().splitlines()]
failures = []


def asked(words: list[str], folder: str = "/") -> tuple[int, str, str, float]:
    began = time.monotonic()
    done = subprocess.run([rehearse, *words], capture_output=True, cwd=folder)
    return done.returncode, done.stdout.decode(), done.stderr.decode(), time.monotonic() - began


def first_difference(a: str, b: str) -> str:
    for one, other in zip(a.splitlines() + [""], b.splitlines() + [""]):
        if one != other:
            return f"{one.strip()!r}, and the page {other.strip()!r}"
    return "one ends before the other"


def same(words: list[str], of_page: dict, seconds: float, folder: str = "/") -> None:
    code, text, errors, native = asked(words, folder)
    # Where the shipped files lie differs: in a page, in the folders of the Debian package.
    text, errors = (one.replace(f"{ROOT}/scenarios/", "/usr/share/rehearse/scenarios/") for one in (text, errors))
    text, of_page["text"] = (re.sub(r'("(?:instead_)?wall_s": )[^,]*', r"\1...", one) for one in (text, of_page["text"]))
    for what, ours, pages in (("exit code", str(code), str(of_page["code"])), ("text", text, of_page["text"]), ("errors", errors, of_page["errors"])):
        if ours != pages:
            failures.append(f"{' '.join(words)}: {what}: {first_difference(ours, pages)}")
    print(f"{' '.join(words)}: {len(text)} bytes, {native:.2f} s, in the page {seconds:.2f} s", flush=True)


READY = "globalThis.rehearsePage && rehearsePage.ready === true"
page = browser.Browser(1100, 570)
try:
    page.open(html.as_uri(), READY)
    for words in QUESTIONS:
        began = time.monotonic()
        answer = page.evaluate(f"rehearsePage.ask({words!r})")
        same(words, answer, time.monotonic() - began)

    # The link: opened, it has the answer; by hand, the address has the question.
    page.call("Page.navigate", url="about:blank")
    page.open(html.as_uri() + "#plan+llama3-8b+--gpus+16+--on+dgx-h100", READY + " && rehearsePage.shown !== undefined")
    code, text, errors, _ = asked("plan llama3-8b --gpus 16 --on dgx-h100".split())
    if page.evaluate("document.getElementById('answer').textContent") != errors + text:
        failures.append("a link is opened, and another answer stands there")
    if len(sys.argv) > 3:
        Path(sys.argv[3]).write_bytes(page.picture())
    page.evaluate("rehearsePage.shown = undefined")
    page.evaluate("document.getElementById('question').value = \"rehearse simulate 3d-8-gpus --set 'plan.schedule=gpipe'\"")
    page.evaluate("document.getElementById('line').requestSubmit()")
    until = time.monotonic() + 60
    while not page.evaluate("rehearsePage.shown !== undefined") and time.monotonic() < until:
        time.sleep(0.05)
    if not page.evaluate("location.hash") == "#simulate+3d-8-gpus+--set+plan.schedule=gpipe":
        failures.append("the question is not in the address: " + page.evaluate("location.hash"))
    if "step time" not in page.evaluate("document.getElementById('answer').textContent"):
        failures.append("a question by hand has no answer")

    # A file of one's own, by its name.
    mine = (ROOT / "scenarios/tiny-one.json").read_text().replace('"micro_batch": 1', '"micro_batch": 2')
    page.evaluate(f"""(() => {{ const chosen = new DataTransfer(); chosen.items.add(new File([{json.dumps(mine)}], 'mine.json'));
        const own = document.getElementById('own'); own.files = chosen.files; return own.onchange(); }})()""")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "mine.json").write_text(mine)
        began = time.monotonic()
        answer = page.evaluate("rehearsePage.ask(['simulate', 'mine.json', '--json'])")
        same(["simulate", "mine.json", "--json"], answer, time.monotonic() - began, folder)

    requests = [url for url in page.requests() if not url.startswith(("file:", "about:", "data:", "blob:"))]
    if requests:
        failures.append(f"the page asks for {requests}")
finally:
    page.close()
for failure in failures:
    print(failure)
print(f"{len(QUESTIONS)} questions, {len(failures)} differences")
sys.exit(bool(failures))
