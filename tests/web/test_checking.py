"""shaderloom.js: large JSON is checked by a worker, with the verdicts of the page's own thread.

Covers: runtime/web/shaderloom/checking.js, runtime/web/shaderloom/checking_worker.js.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..support.bundles import change_manifest, copy_bundle, enlarge_plans, seal, small_bundle
from .conftest import OpenBundle

#: The verdict on the bundle, and what workers answered: with them, without, and where they do not start
VERDICTS = """async () => {
  const { load } = await import("/shaderloom.js");
  const answers = [];
  const Original = globalThis.Worker;
  class Counted extends Original {
    constructor(url, options) {
      super(url, options);
      this.addEventListener("message", ({ data }) => answers.push(data));
    }
  }
  class Missing extends Original {
    constructor(url, options) {
      super("/missing.js", options);
    }
  }
  const verdicts = [];
  for (const kind of [Counted, undefined, Missing]) {
    globalThis.Worker = kind;
    verdicts.push(await load("/bundle/", { prepare: true }).then(async (session) => {
      const { y } = await session.run({ x: new Float32Array(80) }, { outputs: ["y"] });
      session.dispose();
      return y.dims;
    }, ({ kind, message, cause }) => [kind, message, cause?.rule, cause?.path]));
  }
  return { verdicts, answers };
}"""


def verdicts(open_bundle: OpenBundle, folder: Path) -> dict:
    found = open_bundle(folder).call(VERDICTS)
    first, *others = found["verdicts"]
    assert others == [first, first]
    return {"verdict": first, "answers": found["answers"]}


def test_small_files_need_no_worker(open_bundle, static_bundle):
    assert verdicts(open_bundle, static_bundle) == {"verdict": [2, 5, 8], "answers": []}


def test_a_large_plan_is_checked_by_a_worker(open_bundle, tmp_path):
    folder = small_bundle(tmp_path / "b", 5, bias=False, software=False)
    enlarge_plans(folder)
    assert verdicts(open_bundle, folder) == {"verdict": [2, 5, 8], "answers": [{}]}


def test_a_large_manifest_is_checked_by_a_worker(open_bundle, static_bundle, tmp_path):
    folder = copy_bundle(static_bundle, tmp_path / "b")
    change_manifest(folder, model={"custom_metadata_map": {"long": "x" * 2**20}})
    assert verdicts(open_bundle, folder) == {"verdict": [2, 5, 8], "answers": [{}]}


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [("arenas", [-16], "negative"), ("kernels", [], "kernel"), ("notes", {}, "missing")],
)
def test_the_verdict_is_that_of_the_page(open_bundle, tmp_path, field, value, rule):
    folder = small_bundle(tmp_path / "b", 5, bias=False, software=False)
    enlarge_plans(folder)
    (path,) = folder.glob("plan-*.json")
    plan = json.loads(path.read_bytes())
    filler = "x" * 2**21 if field == "notes" else ""
    path.write_text(json.dumps({**plan, field: value, "filler": filler}))
    seal(folder)
    found = verdicts(open_bundle, folder)
    kind, message, found_rule, where = found["verdict"]
    (answer,) = found["answers"]
    assert (kind, found_rule) == ("bundle", rule)
    assert message.startswith(f"'{path.name}': ")
    broken, _, path = answer["refusal"]
    assert (broken, path) == (rule, where)
