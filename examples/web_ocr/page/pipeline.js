/** The three models in a row: picture -> text lines in reading order; mirrors examples/ocr/pipeline.py. */

import { detect } from "./detect.js";
import { corners, crop } from "./geometry.js";
import { turned } from "./images.js";
import { isUpsideDown, readCharacters, recognise } from "./lines.js";

// A reading that the recogniser itself doubts this much is texture rather than text.
const TEXT_THRESHOLD = 0.5;

/** The order in which to read boxes: rows from top to bottom, each from left to right. */
export function inReadingOrder(boxes) {
  const extent = (box) => {
    const ys = corners(box).map(([, y]) => y);
    return Math.max(...ys) - Math.min(...ys);
  };
  const rows = [];
  for (const index of [...boxes.keys()].sort((a, b) => boxes[a].y - boxes[b].y)) {
    const box = boxes[index];
    const first = rows.length ? boxes[rows.at(-1)[0]] : null;
    if (first && box.y - first.y < Math.min(extent(box), extent(first)) / 2) rows.at(-1).push(index);
    else rows.push([index]);
  }
  return rows.flatMap((row) => row.sort((a, b) => boxes[a].x - boxes[b].x));
}

/** Reads pictures with sessions of the three bundles. `onStatus(text)` is called with what is done now. */
export class OcrPipeline {
  constructor({ detection, angle, recognition }, onStatus = () => {}) {
    this.sessions = { detection, angle, recognition };
    this.onStatus = onStatus;
    /** Milliseconds that each model took since the last call of `read`, and its number of runs. */
    this.times = {};
    this.characters = readCharacters(recognition.manifest);
    this.sizes = detection.shapes.map((shapes) => Object.values(shapes)[0]);
    this.widths = recognition.shapes.map((shapes) => Object.values(shapes)[0][3]);
  }

  /** A session of one input and one output as a function. */
  _model(name) {
    const session = this.sessions[name];
    return async (values) => {
      const start = performance.now();
      const outputs = await session.run({ [session.inputs[0].name]: values });
      this.times[name] ??= { milliseconds: 0, runs: 0 };
      const time = this.times[name];
      time.milliseconds += performance.now() - start;
      time.runs++;
      return outputs[session.outputs[0].name];
    };
  }

  /** The lines of a picture: [{text, score, box, boxScore, upsideDown}]. */
  async read(picture) {
    this.times = {};
    this.onStatus("Looking for text");
    const detections = await detect(this._model("detection"), picture, this.sizes);
    const lines = [];
    const order = inReadingOrder(detections.map(({ box }) => box));
    for (const [position, index] of order.entries()) {
      this.onStatus(`Reading line ${position + 1} of ${order.length}`);
      const { box, score: boxScore } = detections[index];
      let line = crop(picture, box);
      const upsideDown = await isUpsideDown(this._model("angle"), line);
      if (upsideDown) line = turned(line);
      const { text, score } = await recognise(this._model("recognition"), line, this.widths, this.characters);
      if (score >= TEXT_THRESHOLD) lines.push({ text, score, box, boxScore, upsideDown });
    }
    return lines;
  }
}
