/** The page of `shaderloom serve`: runs samples of bundles, times runs, lists steps and kernels, takes pictures. */

import { load } from "./shaderloom.js";
import { compare, median, preview } from "./values.js";
import { PIXEL_VALUES, drawPlane, pictureFeed, pictureInput } from "./pictures.js";
import { stepList } from "./steps.js";

const $ = (id) => document.getElementById(id);
let bundles = []; // name, url and code of each
let session;
let current = 0; // index of the plan
let busy = false;

function element(name, properties = {}, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}

function tell(message, failed = false) {
  $("status").textContent = message;
  $("status").className = failed ? "bad" : "";
}

/** Run `work` with the controls disabled; what it throws is shown on the page. */
async function exclusively(message, work) {
  if (busy) return;
  busy = true;
  enable();
  tell(message);
  try {
    tell(await work());
  } catch (error) {
    tell(error.message, true);
    if (error.name !== "ShaderloomError") console.error(error);
  } finally {
    $("progress").hidden = true;
    busy = false;
    enable();
  }
}

function enable() {
  const ready = Boolean(session) && !busy;
  const hasSample = ready && sampleIndex() >= 0;
  $("run").disabled = $("time").disabled = !hasSample;
  $("plan").disabled = $("file").disabled = !ready;
  $("bundle").disabled = busy;
  document.body.toggleAttribute("aria-busy", busy);
}

function onProgress({ what, done, total, awaits }) {
  $("progress").hidden = false;
  $("progress").max = Math.max(total, 1);
  $("progress").value = done;
  if (what === "weights") tell(`Loading weights: ${megabytes(done)} of ${megabytes(total)}`);
  else if (what === "pipelines") tell(`Compiling shaders: ${done} of ${total}, ${awaits}`);
  else tell(`Loading ${awaits}`);
}

const megabytes = (bytes) => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
const milliseconds = (value) => `${value.toPrecision(3)} ms`;
const dimsText = (dims) => dims.join("×") || "scalar";
const shapesText = (shapes) => Object.entries(shapes).map(([name, dims]) => `${name} ${dimsText(dims)}`).join(", ");
const times = (number, one) => `${number} ${one}${number === 1 ? "" : "s"}`;

/** The sample of the current plan or program, or -1. */
function sampleIndex() {
  const { plans, programs = [], samples } = session.manifest;
  const { key } = [...plans, ...programs][current];
  return samples.findIndex((sample) => sample.plan === key);
}

// -- the sample -------------------------------------------------------------------------------------------------------

async function runSample() {
  const sample = await session.sample(sampleIndex());
  await session.prepare(current);
  tell("Running");
  const start = performance.now();
  const results = await session.run(sample.inputs);
  const seconds = (performance.now() - start) / 1000;
  const rows = Object.entries(sample.outputs).map(([name, expected]) => {
    const result = compare(results[name], expected, sample.tolerance);
    return { name, expected, actual: results[name], ...result };
  });
  $("outputs").replaceChildren(outputTable(rows, sample.tolerance));
  const agree = rows.every((row) => row.agrees);
  document.body.dataset.sample = agree ? "agrees" : "differs";
  $("status").className = agree ? "good" : "bad";
  const verdict = agree ? "All outputs agree with the expected ones" : "Some outputs differ from the expected ones";
  return `${verdict} (first run ${seconds.toFixed(2)} s)`;
}

function outputTable(rows, tolerance) {
  const head = element("tr", {}, ...["Output", "Type", "Largest error", "Verdict", "First values", "Expected"].map(
    (title) => element("th", { scope: "col", textContent: title }),
  ));
  const body = rows.map((row) => element("tr", {},
    element("th", { scope: "row", textContent: row.name }),
    element("td", { textContent: `${row.expected.dtype} ${dimsText(row.expected.dims)}` }),
    element("td", { textContent: Number.isFinite(row.error) ? row.error.toExponential(2) : row.reason }),
    element("td", { textContent: row.agrees ? "agrees" : "differs", className: row.agrees ? "good" : "bad" }),
    element("td", {}, element("code", { textContent: preview(row.actual) })),
    element("td", {}, element("code", { textContent: preview(row.expected) })),
  ));
  const caption = element("caption", {
    textContent: `Errors are relative to the largest magnitude (at least 1); up to ${tolerance} agrees.`,
  });
  return element("table", {}, caption, element("thead", {}, head), element("tbody", {}, ...body));
}

async function timeRuns() {
  const { inputs } = await session.sample(sampleIndex());
  await session.prepare(current);
  await session.run(inputs);
  const repeat = Math.min(1000, Math.max(1, Math.floor(Number($("repeat").value)) || 1));
  const durations = [];
  for (let index = 0; index < repeat; index++) {
    tell(`Timing run ${index + 1} of ${repeat}`);
    const start = performance.now();
    await session.run(inputs);
    durations.push(performance.now() - start);
  }
  const facts = [
    ["Median of runs", milliseconds(median(durations))],
    ["Fastest run", milliseconds(Math.min(...durations))],
  ];
  if (session.device.features.has("timestamp-query")) {
    tell("Timing kernels");
    const calls = await session.profile(inputs);
    facts.push(["Sum of kernels", milliseconds(calls.reduce((sum, call) => sum + call.microseconds, 0) / 1000)]);
    showKernelTimes(calls);
  } else {
    facts.push(["Kernels", "this GPU offers no timestamps"]);
  }
  $("times").replaceChildren(...facts.flatMap(([name, value]) => [
    element("dt", { textContent: name }), element("dd", { textContent: value }),
  ]));
  return `Timed ${times(repeat, "run")}`;
}

// -- kernels ----------------------------------------------------------------------------------------------------------

async function listKernels() {
  const plans = await session.prepare(current);
  listSteps(plans);
  const calls = plans.flatMap((plan) => plan.commands).flatMap((command) => command.calls);
  const kernels = [...new Map(plans.flatMap((plan) => plan.kernels).map((kernel) => [kernel.key, kernel])).values()];
  const { nodes: total } = session.manifest;
  $("kernels-note").textContent =
    `${times(calls.length, "call")} of ${times(kernels.length, "kernel")} stand for ${times(total, "ONNX node")}.`;
  const items = kernels.map((kernel) => {
    const own = calls.filter((call) => call.kernel === kernel.key);
    const nodes = [...new Set(own.flatMap((call) => call.origins ?? []))];
    const labels = [...new Set(own.map((call) => call.label).filter(Boolean))];
    const bindings = kernel.bindings
      .map(({ name, element: type, access }) => `${name}: ${type} (${access.replace("_", " ")})`)
      .join(", ");
    const text = element("pre", { tabIndex: 0, ariaLabel: "WGSL" });
    const summary = element("summary", {},
      element("strong", { textContent: labels.join("; ") || kernel.template }),
      element("span", { className: "quiet", textContent: `${kernel.template}, ${times(own.length, "call")}` }),
      element("span", { className: "time" }),
    );
    const details = element("details", {}, summary,
      element("p", { className: "quiet", textContent: `Workgroup ${kernel.workgroup.join("×")}, bindings ${bindings}` }),
      element("p", { className: "quiet", textContent: nodes.join(", ") }),
      text,
    );
    details.dataset.kernel = kernel.key;
    details.addEventListener("toggle", async () => {
      if (!details.open || text.textContent) return;
      try {
        text.textContent = await session.shader(kernel);
      } catch (error) {
        text.textContent = error.message;
      }
    });
    return element("li", {}, details);
  });
  $("kernels").replaceChildren(...items);
}

/** Show the steps of the current program; a plan has none. */
function listSteps(plans) {
  const { plans: records, programs = [] } = session.manifest;
  const program = programs[current - records.length];
  $("program").hidden = !program;
  if (program) $("steps").replaceChildren(stepList(element, program, new Map(plans.map((plan) => [plan.key, plan]))));
}

function showKernelTimes(calls) {
  const total = calls.reduce((sum, call) => sum + call.microseconds, 0) || 1;
  const byKernel = new Map();
  for (const call of calls) byKernel.set(call.kernel, (byKernel.get(call.kernel) ?? 0) + call.microseconds);
  for (const details of document.querySelectorAll("#kernels details")) {
    const time = byKernel.get(details.dataset.kernel) ?? 0;
    details.querySelector(".time").textContent = `${milliseconds(time / 1000)}, ${(100 * time / total).toFixed(1)} %`;
  }
}

// -- pictures ---------------------------------------------------------------------------------------------------------

async function runPicture(file) {
  const shapes = session.shapes[current];
  const { name, dims } = pictureInput(session.inputs, shapes);
  const feed = await pictureFeed(file, dims, Object.values(PIXEL_VALUES)[$("values").value], $("seen"));
  $("seen").hidden = false;
  const start = performance.now();
  const results = await session.run({ [name]: feed });
  const seconds = (performance.now() - start) / 1000;
  $("picture-outputs").replaceChildren(...Object.entries(results).map(([output, tensor]) => showOutput(output, tensor)));
  return `Ran ${file.name} in ${seconds.toFixed(2)} s`;
}

/** An output for people: a plane as a picture, a row of scores as its largest, anything else as its first values. */
function showOutput(name, tensor) {
  const { dims, data } = tensor;
  const title = element("h3", { textContent: `${name} ${dims.join("×")}` });
  if (dims.length === 4 && dims[1] === 1 && dims[2] > 4 && dims[3] > 4) {
    const canvas = element("canvas", { role: "img", ariaLabel: `${name} as a picture` });
    drawPlane(canvas, data, dims[3], dims[2]);
    return element("div", {}, title, canvas);
  }
  if (dims.length === 2 && dims[0] === 1 && dims[1] > 1) {
    const order = [...data.keys()].sort((a, b) => data[b] - data[a]).slice(0, 5);
    const texts = order.map((index) => `class ${index}: ${Number(data[index]).toPrecision(4)}`);
    const list = element("ol", {}, ...texts.map((textContent) => element("li", { textContent })));
    return element("div", {}, title, element("p", { textContent: "Largest values" }), list);
  }
  return element("div", {}, title, element("code", { textContent: preview(tensor, 16) }));
}

function choosePicture(files) {
  const [file] = files;
  if (!file) return;
  exclusively(`Reading ${file.name}`, () => runPicture(file));
}

// -- the start --------------------------------------------------------------------------------------------------------

async function choosePlan() {
  current = Number($("plan").value);
  $("outputs").replaceChildren();
  $("times").replaceChildren();
  const hasSample = sampleIndex() >= 0;
  $("sample-note").textContent = hasSample
    ? "An input that came with the bundle, and the outputs that every device should give."
    : "The bundle has no sample for these shapes: shaderloom compile --sample adds one.";
  $("picture").hidden = !pictureInput(session.inputs, session.shapes[current]);
  await listKernels();
  return "Ready";
}

async function start() {
  bundles = await (await fetch("bundles.json")).json();
  $("choice").hidden = bundles.length === 1;
  $("bundle").replaceChildren(...options(bundles.map(({ name }) => name)));
  $("values").replaceChildren(...options(Object.keys(PIXEL_VALUES)));
  return chooseBundle();
}

const options = (texts) => texts.map((textContent, value) => element("option", { value, textContent }));

async function chooseBundle() {
  const { name, url, code } = bundles[Number($("bundle").value)];
  session?.dispose();
  session = undefined;
  delete document.body.dataset.sample;
  for (const part of ["outputs", "times", "steps", "kernels", "picture-outputs"]) $(part).replaceChildren();
  $("name").textContent = document.title = name;
  $("code").textContent = code;
  const loaded = await load(url, { onProgress });
  session = loaded;
  loaded.lost.then((reason) => session === loaded && tell(`${reason}. Load the page again.`, true));
  const { manifest, device } = session;
  const bytes = Object.values(manifest.files).reduce((sum, file) => sum + file.size, 0);
  const { description, architecture, vendor } = device.adapterInfo ?? {};
  $("about").textContent = [
    manifest.model.graph_name || "Model", times(manifest.nodes, "ONNX node"), megabytes(bytes),
    `compiled for ${manifest.target}`, `on ${description || architecture || vendor || "this GPU"}`,
  ].join(", ");
  $("plan").replaceChildren(...options(session.shapes.map(shapesText)));
  return choosePlan();
}

$("run").addEventListener("click", () => exclusively("Running", runSample));
$("time").addEventListener("click", () => exclusively("Timing", timeRuns));
$("plan").addEventListener("change", () => exclusively("Loading", choosePlan));
$("bundle").addEventListener("change", () => exclusively("Loading", chooseBundle));
$("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText($("code").textContent);
  $("copy").textContent = "Copied";
  setTimeout(() => { $("copy").textContent = "Copy the code"; }, 2000);
});
$("file").addEventListener("change", (event) => choosePicture(event.target.files));
for (const type of ["dragover", "dragleave", "drop"]) {
  $("drop").addEventListener(type, (event) => {
    event.preventDefault();
    $("drop").classList.toggle("over", type === "dragover");
    if (type === "drop") choosePicture(event.dataTransfer.files);
  });
}
exclusively("Loading", start);
