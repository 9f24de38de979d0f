"""``./dev inspect-demo``: reports of three models, opened in a browser and checked.

Each report is written with measured times to ``build/inspect``.  With Chromium on the machine each is opened from the
disk: nothing may be loaded from a network or written to the console, the first paint must come within two seconds, and
the keyboard must reach a kernel's shader.  ``--screenshots FOLDER`` writes pictures.
"""

from __future__ import annotations

import argparse
import base64
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from shaderloom.cli.inspect_html import write_report
from shaderloom.inspect.inspected_plan import inspect_model
from shaderloom.model.model import Model
from shaderloom.session.session import InferenceSession
from tests.web.chromium import Chromium, Page, find_chromium

from .models import MODELS

#: Reports and the call that their pictures show
NAMES = {"ppocr_det": 20, "resnet50": 12, "bert_small": 11}
LARGEST_FILE = 5_000_000
LONGEST_PAINT_MS = 2000


@dataclass(frozen=True)
class OpenedReport:
    """What a browser says of a report."""

    first_paint_ms: float
    complaints: list[str]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="./dev inspect-demo", description=__doc__)
    parser.add_argument("--screenshots", type=Path, metavar="FOLDER", help="write pictures of the reports there")
    parser.add_argument("--models", default=",".join(NAMES), metavar="A,B", help=f"of {', '.join(NAMES)}")
    options = parser.parse_args(arguments)
    folder = Path("build/inspect")
    folder.mkdir(parents=True, exist_ok=True)
    reports = [make_report(name, folder) for name in options.models.split(",")]
    program = find_chromium()
    if program is None:
        print("the reports were not opened: there is no Chromium")
        return 0
    failed = False
    with Chromium(program) as browser:
        for report in reports:
            opened = check_report(browser, report, options.screenshots)
            print(f"{report}: first paint after {opened.first_paint_ms:.0f} ms")
            for complaint in opened.complaints:
                print(f"  {complaint}")
            failed |= bool(opened.complaints)
    return int(failed)


def make_report(name: str, folder: Path) -> Path:
    """The report of one model, with the times of its kernels."""
    model, target = MODELS[name], folder / f"{name}.html"
    feeds = model.feeds()
    with InferenceSession(model.locate(), cache=False) as session:
        opened = Model(model.locate(), cache=False)
        shapes = {port: array.shape for port, array in feeds.items()}
        inspected = inspect_model(opened, shapes, session.device.profile)
        named = replace(inspected, facts={**inspected.facts, "name": f"{name}.onnx"})  # not as the cache calls the file
        write_report(target, named, session, feeds)
    print(f"wrote {target}, {target.stat().st_size / 1e3:.0f} kB")
    return target


def check_report(browser: Chromium, report: Path, screenshots: Path | None) -> OpenedReport:
    """Open a report, use it with keys, and collect what is wrong."""
    number = NAMES[report.stem]
    url = report.absolute().as_uri()
    complaints = []
    with browser.open(f"{url}#call-{number}", width=1440, height=900) as page:
        page.wait_for("document.documentElement.dataset.state === 'complete'")
        paint = page.evaluate("performance.getEntriesByType('paint')[0].startTime")
        if paint > LONGEST_PAINT_MS:
            complaints.append(f"the first paint came after {paint:.0f} ms")
        if report.stat().st_size > LARGEST_FILE:
            complaints.append(f"the file has {report.stat().st_size:,} bytes")
        if screenshots is not None:
            _screenshots(page, screenshots, report.stem)
        if not _keys_reach_a_shader(page):
            complaints.append("the keyboard does not reach a kernel's shader")
        complaints += page.messages
        complaints += [f"it asked for {asked}" for asked in page.requests if not asked.startswith(("file:", "data:"))]
    return OpenedReport(paint, complaints)


def _keys_reach_a_shader(page: Page) -> bool:
    """Search for additions, which every model has, choose one, go on to the next, open it."""
    for key in ("/", "a", "d", "d", "Enter", "ArrowDown", "Enter"):
        text = key if len(key) == 1 else ""
        for kind in ("keyDown", "keyUp"):
            page.send("Input.dispatchKeyEvent", {"type": kind, "key": key, "text": text})
    focused = page.evaluate("document.activeElement.id")
    return focused == "details" and "fn main" in page.evaluate("byId('details').innerText")


def _screenshots(page: Page, folder: Path, name: str) -> None:
    """The whole page, and one scrolled to the shader."""
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, script in (
        ("", "byId('colour').value = 'ns'; byId('colour').dispatchEvent(new Event('change')); 0"),
        ("-kernel", "byId('details').querySelector('pre').scrollIntoView(); 0"),
    ):
        page.evaluate(script)
        page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        shot = page.send("Page.captureScreenshot", {"format": "png"})
        _write_png(folder / f"inspect-{name}{suffix}.png", base64.b64decode(shot["data"]))


def _write_png(path: Path, data: bytes) -> None:
    """A picture with a palette: a third of the size, and no difference that one sees."""
    from PIL import Image

    with tempfile.NamedTemporaryFile(suffix=".png") as file:
        file.write(data)
        file.flush()
        with Image.open(file.name) as image:
            image.convert("RGB").quantize(192).save(path, optimize=True)


if __name__ == "__main__":
    sys.exit(main())
