"""Opens many bundles in one page of a browser, one after another on one device, and says what became of each."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shaderloom.serve.files import content_type, runner_resources
from shaderloom.serve.site import Resource, Site

from ..support.bundles import files_of
from ..support.hostile import Seed
from ..support.hostile_mutations import mutated
from ..support.verdicts import Verdict
from .chromium import Chromium, Page, PageError
from .conftest import EMPTY

#: Seconds after which a bundle hangs: a quiet machine takes a fiftieth of a second
HANG = 60

#: Seconds after which a run is ended by its signal
PATIENT_RUN = 2

#: Feeds of the small model, as JavaScript
SMALL_FEEDS = "{ x: { data: new Float32Array(2 * 5 * 8), dims: [2, 5, 8] }, bias: new Float32Array(8) }"

#: Load a bundle, compile its plans, run it, read its samples
SCRIPT = """async (url) => {
  const { load, ShaderloomError } = await import("/shaderloom.js");
  const state = (globalThis.state ??= { losses: 0, reports: [] });
  if (!state.device) {
    state.device = await (await navigator.gpu.requestAdapter()).requestDevice();
    state.device.onuncapturederror = ({ error }) => state.reports.push(error.message);
    state.device.lost.then(() => { state.device = null; state.losses++; });
  }
  const told = { kind: "ran", text: "", rule: null, path: [] };
  let session;
  try {
    session = await load(url, { device: state.device, model: MODEL });
    await session.prepare();
    const signal = AbortSignal.timeout(1000 * SECONDS);
    await session.run(FEEDS, { signal }).catch((error) => {
      if (error !== signal.reason) throw error;
      told.kind = "ended";
    });
    for (const index of session.manifest.samples.keys()) await session.sample(index);
  } catch (error) {
    told.kind = error instanceof ShaderloomError ? error.kind : "foreign";
    told.text = String(told.kind === "foreign" ? error.stack : error.message);
    told.rule = error.cause?.rule ?? null;
    told.path = error.cause?.path ?? [];
  }
  session?.dispose();
  await state.device?.queue.onSubmittedWorkDone().catch(() => {});
  return { ...told, losses: state.losses, reports: state.reports.splice(0) };
}"""


@dataclass(frozen=True)
class Outcome:
    """``kind`` is "ran", "ended" of a run that its signal ended, the kind of the runner's error, "foreign" for another,
    or "dies" of a page without an answer.

    ``rule`` and ``path`` are those of a refusal, ``reports`` what the device told nobody, ``losses`` those of devices
    so far.
    """

    kind: str
    text: str = ""
    rule: str | None = None
    path: tuple[str | int, ...] = ()
    losses: int = 0
    reports: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """What the readers say: the place begins with the file."""
        if self.rule is None:
            return Verdict(None)
        return Verdict(self.rule, ("manifest" if self.text.startswith("'manifest.json'") else "plan", *self.path))


class Attempts:
    """One page for all bundles, which are files by name; a new page takes the place of one that hangs or dies.

    ``feeds`` are those of the runs, as JavaScript, of the further ``model`` where it is named.
    """

    def __init__(
        self, browser: Chromium, bundles: Sequence[Mapping[str, bytes]], feeds: str = SMALL_FEEDS, model: str = ""
    ) -> None:
        self._browser = browser
        script = SCRIPT.replace("FEEDS", feeds).replace("SECONDS", str(PATIENT_RUN))
        self._script = script.replace("MODEL", json.dumps(model) if model else "undefined")
        self._page: Page | None = None
        files = {f"/{number}/{name}": data for number, files in enumerate(bundles) for name, data in files.items()}
        contents = {id(data): Resource(content_type(path), lambda data=data: data) for path, data in files.items()}
        resources = {path: contents[id(data)] for path, data in files.items()}
        self._site = Site({**EMPTY, **runner_resources(), **resources})
        self.restarts = 0

    def __enter__(self) -> Attempts:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._site.close()

    def outcome(self, number: int) -> Outcome:
        """Try a bundle."""
        self._page = self._page or self._browser.open(self._site.url + "empty.html")
        try:
            answer: dict[str, Any] = self._page.call(self._script, f"/{number}/", timeout=HANG)
        except PageError as error:
            self._end()
            self.restarts += 1
            return Outcome("dies", str(error))
        return Outcome(**{**answer, "path": tuple(answer["path"]), "reports": tuple(answer["reports"])})

    def _end(self) -> None:
        if self._page is not None:
            self._page.__exit__()
            self._page = None


def try_mutations(browser: Chromium, folder: Path, feeds: str, count: int, model: str = "") -> Counter[str]:
    """Try a bundle and mutations of it with right digests, those of the programs that its manifest has first of all.

    Each is a result, an error of the runner's own, or, where so much is left to do, the end that a signal asks for, and
    the page and its device live through all.  Return how many had which kind of outcome.
    """
    seed, files = Seed.of(folder, model), files_of(folder)
    bundles = [seed.sealed(files, *mutated(seed, random.Random(number), aimed=True)) for number in range(count)]
    kinds: Counter[str] = Counter()
    with Attempts(browser, [files, *bundles], feeds, model) as attempts:
        assert attempts.outcome(0).kind == "ran"
        for number in range(1, len(bundles) + 1):
            outcome = attempts.outcome(number)
            assert outcome.kind in ("ran", "ended", "bundle", "device", "input"), (number, outcome)
            assert not outcome.losses, (number, outcome)
            kinds[outcome.kind] += 1
        assert not attempts.restarts
    return kinds
