// What every part of the page uses: reading the data, numbers for people, elements, and the selected call.

const byId = (id) => document.getElementById(id);

/** The JSON value that stands in the page as base64 of gzip. */
async function unpack(id) {
  const bytes = Uint8Array.from(atob(byId(id).textContent.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function scaled(value, units, step) {
  let unit = 0;
  while (value >= step && unit < units.length - 1) { value /= step; unit++; }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toPrecision(3)} ${units[unit]}`;
}
const bytesText = (value) => scaled(value, ["B", "KiB", "MiB", "GiB"], 1024);
const flopsText = (value) => scaled(value, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"], 1000);
const timeText = (value) => scaled(value, ["ns", "µs", "ms", "s"], 1000);

/** An element with properties, and children that are elements or texts. */
function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/** The selected call; parts of the page are notified when it changes. */
const selection = {
  call: -1,
  listeners: [],
  set(call, origin) {
    if (call === this.call || call < 0) return;
    this.call = call;
    history.replaceState(null, "", `#call-${call}`);
    for (const listener of this.listeners) listener(call, origin);
  },
};

const colours = getComputedStyle(document.documentElement);
const colour = (name) => colours.getPropertyValue(`--${name}`).trim();
const dark = matchMedia("(prefers-color-scheme: dark)");

/** A colour that stands for a name: the same in every report. */
function hueOf(name) {
  let hash = 7;
  for (const letter of name) hash = (hash * 31 + letter.codePointAt(0)) % 3600;
  return (hash * 137) % 360;
}
const fill = (hue) => (dark.matches ? `hsl(${hue} 35% 26%)` : `hsl(${hue} 62% 88%)`);

/** A canvas that is as sharp as the screen; gives its context in CSS pixels, and its size. */
function sized(canvas) {
  const box = canvas.getBoundingClientRect();
  const ratio = window.devicePixelRatio || 1;
  const width = Math.max(1, Math.round(box.width * ratio));
  const height = Math.max(1, Math.round(box.height * ratio));
  if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, box.width, box.height);
  return { context, width: box.width, height: box.height };
}
