/** The page: loads the three bundles, takes a picture, shows its text. */

import { load } from "./shaderloom.js";
import { corners } from "./geometry.js";
import { readPicture } from "./images.js";
import { OcrPipeline } from "./pipeline.js";

const MODELS = { detection: "Detection", angle: "Angle", recognition: "Recognition" };
const $ = (id) => document.getElementById(id);
let pipeline;
let busy = false;

function tell(message, failed = false) {
  $("status").textContent = message;
  $("status").className = failed ? "bad" : "";
}

/** Run `work` while the controls are off; what it throws is shown on the page. */
async function exclusively(work) {
  if (busy) return;
  busy = true;
  enable();
  try {
    await work();
  } catch (error) {
    tell(error.message, true);
    if (error.name !== "ShaderloomError") console.error(error);
  } finally {
    busy = false;
    $("progress").hidden = true;
    enable();
  }
}

function enable() {
  $("file").disabled = $("again").disabled = busy || !pipeline;
  document.body.toggleAttribute("aria-busy", busy);
}

async function loadModels() {
  const adapter = await navigator.gpu?.requestAdapter({ powerPreference: "high-performance" });
  const sessions = {};
  let device; // the first session's; the others share it
  for (const [name, title] of Object.entries(MODELS)) {
    const onProgress = ({ what, done, total, awaits }) => {
      $("progress").hidden = false;
      $("progress").value = total ? done / total : 1;
      tell(what === "pipelines" ? `${title}: compiling shader ${done} of ${total}` : `${title}: loading ${awaits}`);
    };
    device ??= adapter && (await adapter.requestDevice());
    sessions[name] = await load(`${name}/`, { device, prepare: true, onProgress });
  }
  sessions.detection.lost.then((reason) => tell(`${reason}. Load the page again.`, true));
  pipeline = new OcrPipeline(sessions, tell);
}

async function read(blob, name) {
  let picture;
  try {
    picture = await readPicture(blob);
  } catch {
    throw new Error(`${name} is not a picture that this browser can read`);
  }
  draw(picture, []);
  $("lines").replaceChildren();
  const start = performance.now();
  const lines = await pipeline.read(picture);
  draw(picture, lines);
  show(lines);
  const seconds = (performance.now() - start) / 1000;
  tell(`Read ${lines.length} ${lines.length === 1 ? "line" : "lines"} of ${name} in ${seconds.toFixed(2)} s`);
}

function draw({ width, height, data }, lines) {
  const canvas = $("picture");
  Object.assign(canvas, { width, height, hidden: false });
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  for (let from = 0, to = 0; from < data.length; from += 3, to += 4) {
    image.data[to] = data[from];
    image.data[to + 1] = data[from + 1];
    image.data[to + 2] = data[from + 2];
    image.data[to + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  context.lineWidth = 2 * Math.max(1, Math.round(Math.max(width, height) / 640));
  for (const { box, upsideDown } of lines) {
    context.strokeStyle = upsideDown ? "rgb(214 64 32)" : "rgb(24 132 72)";
    context.beginPath();
    for (const [x, y] of corners(box)) context.lineTo(x, y);
    context.closePath();
    context.stroke();
  }
}

function element(name, properties, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}

/** A duration in milliseconds for people. The first run of a shape compiles its shaders, which may take long. */
const durationText = (milliseconds) =>
  milliseconds < 1000 ? `${milliseconds.toFixed(0)} ms` : `${(milliseconds / 1000).toFixed(1)} s`;

function show(lines) {
  const items = lines.map(({ text, score, upsideDown }) => element("li", {},
    element("span", { className: "text", textContent: text }),
    element("span", {
      className: "note",
      textContent: `score ${score.toFixed(3)}${upsideDown ? ", upside down" : ""}`,
    }),
  ));
  $("lines").replaceChildren(...(items.length ? items : [element("li", { textContent: "No text was found." })]));
  $("times").replaceChildren(...Object.entries(pipeline.times).flatMap(([name, { milliseconds, runs }]) => [
    element("dt", { textContent: MODELS[name] }),
    element("dd", { textContent: `${durationText(milliseconds)} in ${runs} ${runs === 1 ? "run" : "runs"}` }),
  ]));
}

async function readExample() {
  await read(await (await fetch("sample.png")).blob(), "the example");
}

function choose([file]) {
  if (file) exclusively(() => read(file, file.name));
}

$("again").addEventListener("click", () => exclusively(readExample));
$("file").addEventListener("change", (event) => choose(event.target.files));
for (const type of ["dragover", "dragleave", "drop"]) {
  $("drop").addEventListener(type, (event) => {
    event.preventDefault();
    $("drop").classList.toggle("over", type === "dragover");
    if (type === "drop") choose(event.dataTransfer.files);
  });
}
exclusively(async () => {
  await loadModels();
  await readExample();
});
