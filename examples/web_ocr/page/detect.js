/** Text detection: a picture -> rotated boxes; mirrors examples/ocr/detect.py for a fixed set of network sizes. */

import { componentRuns, outlinePoints } from "./components.js";
import { corners, expanded, insideBox, minimumAreaBox, scaled } from "./geometry.js";
import { networkInput, resize } from "./images.js";
import { clamp, round } from "./numbers.js";

const MEAN = [0.485, 0.456, 0.406];
const DEVIATION = [0.229, 0.224, 0.225];
const PIXEL_THRESHOLD = 0.3;
const BOX_THRESHOLD = 0.6;
const UNCLIP_RATIO = 1.6;
const SHORTEST_CORE_SIDE = 3;

/**
 * How to fit a picture into one of the network's sizes [1, 3, height, width]: never enlarged, shrunk as little as
 * possible, in the smallest of the sizes that are equal in this. {height, width} is what the picture becomes.
 */
export function fitting(picture, sizes) {
  const fits = sizes.map(([, , networkHeight, networkWidth]) => {
    const scale = Math.min(1, networkWidth / picture.width, networkHeight / picture.height);
    return {
      networkHeight, networkWidth, scale,
      width: Math.max(1, round(picture.width * scale)), height: Math.max(1, round(picture.height * scale)),
    };
  });
  const area = (fit) => fit.networkHeight * fit.networkWidth;
  const isBetter = (fit, best) => fit.scale > best.scale || (fit.scale === best.scale && area(fit) < area(best));
  return fits.reduce((best, fit) => (isBetter(fit, best) ? fit : best));
}

/** The text boxes of a picture in its own coordinates: [{box, score}]. */
export async function detect(model, picture, sizes) {
  const { width, height, networkHeight, networkWidth } = fitting(picture, sizes);
  const values = networkInput(resize(picture, width, height), MEAN, DEVIATION, networkHeight, networkWidth);
  const { data } = await model(values);
  return boxesFromProbabilities(data, networkWidth, width, height).map(({ box, score }) => ({
    box: scaled(box, picture.width / width, picture.height / height), score,
  }));
}

/** Boxes in a map of core probabilities with `stride` values a row, of which width x height are the picture. */
export function boxesFromProbabilities(probabilities, stride, width, height) {
  const boxes = [];
  const threshold = Math.fround(PIXEL_THRESHOLD);
  const isCore = (column, row) => probabilities[row * stride + column] > threshold;
  for (const runs of componentRuns(isCore, width, height)) {
    // Half a pixel more than the outermost centres is right in any direction, whole pixels only along the axes.
    const core = expanded(minimumAreaBox(outlinePoints(runs)), 0.5);
    if (core.height < SHORTEST_CORE_SIDE || core.width < SHORTEST_CORE_SIDE) continue;
    const score = boxScore(probabilities, stride, width, height, core);
    if (score < BOX_THRESHOLD) continue;
    // Training shrank each outline by area / perimeter times a ratio; this is its approximate inverse.
    const distance = (UNCLIP_RATIO * core.width * core.height) / (2 * (core.width + core.height));
    boxes.push({ box: expanded(core, distance), score });
  }
  return boxes;
}

/** The mean probability of the pixels whose centres lie in the box; zero if there are none. */
function boxScore(probabilities, stride, width, height, box) {
  const points = corners(box);
  const [xs, ys] = [points.map(([x]) => x), points.map(([, y]) => y)];
  const left = clamp(Math.floor(Math.min(...xs)), 0, width), right = clamp(Math.ceil(Math.max(...xs)), 0, width);
  const top = clamp(Math.floor(Math.min(...ys)), 0, height), bottom = clamp(Math.ceil(Math.max(...ys)), 0, height);
  let sum = 0, count = 0;
  for (let row = top; row < bottom; row++) {
    for (let column = left; column < right; column++) {
      if (!insideBox(box, column, row)) continue;
      sum += probabilities[row * stride + column];
      count++;
    }
  }
  return count ? sum / count : 0;
}
