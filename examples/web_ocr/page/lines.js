/** The two models that look at one line: angle and text; mirrors lines.py, classify.py and recognise.py. */

import { leftPart, networkInput, resize } from "./images.js";
import { round } from "./numbers.js";

const MEAN = [0.5, 0.5, 0.5], DEVIATION = MEAN;
const HEIGHT = 48;
const ANGLE_WIDTH = 192;
// A doubtful line is left as it is.
const ANGLE_THRESHOLD = 0.9;
const BLANK = 0;

/** The width of a line that is resized to the models' height in proportion. */
export function scaledWidth(line) {
  return Math.max(1, Math.ceil((line.width * HEIGHT) / line.height));
}

/** Resized in proportion, squeezed if too long, padded with middle grey on the right. */
function lineInput(line, width) {
  return networkInput(resize(line, Math.min(width, scaledWidth(line)), HEIGHT), MEAN, DEVIATION, HEIGHT, width);
}

/** Whether a line stands on its head. Of one longer than the input only the beginning is looked at. */
export async function isUpsideDown(model, line) {
  const visible = leftPart(line, Math.max(1, round((line.height * ANGLE_WIDTH) / HEIGHT)));
  const { data } = await model(lineInput(visible, ANGLE_WIDTH));
  return data[1] > Math.fround(ANGLE_THRESHOLD);
}

/** The narrowest of the widths that holds a line, or the widest. */
export function fittingWidth(line, widths) {
  const ordered = widths.toSorted((a, b) => a - b);
  return ordered.find((width) => width >= scaledWidth(line)) ?? ordered.at(-1);
}

/** Read a line that is the right way up: {text, score}. */
export async function recognise(model, line, widths, characters) {
  const { data, dims } = await model(lineInput(line, fittingWidth(line, widths)));
  return decode(data, dims[1], dims[2], characters);
}

/** Greedy CTC decoding of [steps, classes]: the best class a step, repeats merged, blanks dropped. */
export function decode(probabilities, steps, classes, characters) {
  let text = "", sum = 0, count = 0, previous = -1;
  for (let step = 0; step < steps; step++) {
    let best = 0;
    for (let index = 1; index < classes; index++) {
      if (probabilities[step * classes + index] > probabilities[step * classes + best]) best = index;
    }
    if (best !== previous && best !== BLANK) {
      text += characters[best];
      sum += probabilities[step * classes + best];
      count++;
    }
    previous = best;
  }
  return { text, score: count ? sum / count : 0 };
}

/** The characters of the recogniser's classes: class 0 is the CTC blank, the last a space. */
export function readCharacters(manifest) {
  const { character } = manifest.model.custom_metadata_map;
  if (!character) throw new Error("the bundle has no metadata entry 'character': it is no PP-OCR recogniser");
  // biome-ignore lint/suspicious/noControlCharactersInRegex: Python's splitlines() splits at these, too
  const lines = character.split(/\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/);
  if (lines.at(-1) === "") lines.pop(); // the end of the last line
  return ["", ...lines, " "];
}
