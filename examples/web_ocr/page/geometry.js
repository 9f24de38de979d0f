/**
 * Rotated rectangles around point sets, and crops along them; mirrors examples/ocr/geometry.py.
 *
 * A box is {x, y, width, height, angle}: centre, sides, and the reading direction in radians clockwise on the screen
 * from +x, in [-pi/4, 3 pi/4). Coordinates are continuous: pixel (column, row) covers [column, column + 1) x [row,
 * row + 1).
 */

import { clamp, modulo, round } from "./numbers.js";

/** [[x, y], ...]: top left, top right, bottom right, bottom left as seen by the reader. */
export function corners({ x, y, width, height, angle }) {
  const along = [(Math.cos(angle) * width) / 2, (Math.sin(angle) * width) / 2];
  const down = [(-Math.sin(angle) * height) / 2, (Math.cos(angle) * height) / 2];
  return [[-1, -1], [1, -1], [1, 1], [-1, 1]].map(([right, below]) => [
    x + right * along[0] + below * down[0],
    y + right * along[1] + below * down[1],
  ]);
}

/** The same box with every side moved outwards. */
export function expanded(box, distance) {
  return { ...box, width: box.width + 2 * distance, height: box.height + 2 * distance };
}

/** The box around this one in a picture that is stretched. */
export function scaled(box, scaleX, scaleY) {
  return minimumAreaBox(corners(box).map(([x, y]) => [x * scaleX, y * scaleY]));
}

/** The corners of the convex hull, without collinear points (Andrew's monotone chain). */
export function convexHull(points) {
  const ordered = points.toSorted(([ax, ay], [bx, by]) => ax - bx || ay - by)
    .filter(([x, y], index, all) => index === 0 || x !== all[index - 1][0] || y !== all[index - 1][1]);
  if (ordered.length <= 2) return ordered;
  const half = (sequence) => {
    const chain = [];
    for (const [x, y] of sequence) {
      while (chain.length >= 2) {
        const [[ax, ay], [bx, by]] = chain.slice(-2);
        if ((bx - ax) * (y - ay) - (by - ay) * (x - ax) > 0) break;
        chain.pop();
      }
      chain.push([x, y]);
    }
    return chain.slice(0, -1);
  };
  return [...half(ordered), ...half(ordered.toReversed())];
}

/** The rectangle of least area around the points; one of its sides lies on a side of their convex hull. */
export function minimumAreaBox(points) {
  const hull = convexHull(points);
  const angles = hull.map(([x, y], index) => {
    const [nextX, nextY] = hull[(index + 1) % hull.length];
    return modulo(Math.atan2(nextY - y, nextX - x), Math.PI / 2);
  });
  let best = null;
  for (const angle of [...new Set(angles)].sort((a, b) => a - b)) {
    const cosine = Math.cos(angle), sine = Math.sin(angle);
    const along = extent(hull.map(([x, y]) => cosine * x + sine * y));
    const across = extent(hull.map(([x, y]) => cosine * y - sine * x));
    const width = along.high - along.low, height = across.high - across.low;
    if (best && width * height >= best.width * best.height) continue;
    const middleAlong = (along.low + along.high) / 2, middleAcross = (across.low + across.high) / 2;
    const x = middleAlong * cosine - middleAcross * sine, y = middleAlong * sine + middleAcross * cosine;
    best = { x, y, width, height, angle };
  }
  return inReadingDirection(best);
}

function extent(values) {
  return { low: Math.min(...values), high: Math.max(...values) };
}

/** The reading direction is the longer side; of a nearly square box it is the side closer to horizontal. */
function inReadingDirection({ x, y, width, height, angle }) {
  const nearlySquare = Math.max(width, height) < 1.5 * Math.min(width, height);
  const swap = nearlySquare ? Math.sin(angle) > Math.cos(angle) : height > width;
  const direction = swap ? angle + Math.PI / 2 : angle;
  return {
    x, y, width: swap ? height : width, height: swap ? width : height,
    angle: modulo(direction + Math.PI / 4, Math.PI) - Math.PI / 4,
  };
}

/** Whether the centre of a pixel lies in the box. */
export function insideBox(box, column, row) {
  const deltaX = column + 0.5 - box.x, deltaY = row + 0.5 - box.y;
  const cosine = Math.cos(box.angle), sine = Math.sin(box.angle);
  const along = Math.abs(deltaX * cosine + deltaY * sine), across = Math.abs(deltaY * cosine - deltaX * sine);
  return along <= box.width / 2 && across <= box.height / 2;
}

/** The content of the box, upright for its reader, sampled bilinearly; outside the picture its border pixels repeat. */
export function crop(picture, box) {
  const width = Math.max(1, round(box.width)), height = Math.max(1, round(box.height));
  const cosine = Math.cos(box.angle), sine = Math.sin(box.angle);
  const data = new Uint8Array(3 * width * height);
  const pixel = (column, row, channel) => picture.data[3 * (row * picture.width + column) + channel];
  for (let row = 0; row < height; row++) {
    const down = ((row + 0.5) / height - 0.5) * box.height;
    for (let column = 0; column < width; column++) {
      const along = ((column + 0.5) / width - 0.5) * box.width;
      const x = clamp(box.x + along * cosine - down * sine - 0.5, 0, picture.width - 1);
      const y = clamp(box.y + along * sine + down * cosine - 0.5, 0, picture.height - 1);
      const left = Math.floor(x), top = Math.floor(y);
      const right = Math.min(left + 1, picture.width - 1), bottom = Math.min(top + 1, picture.height - 1);
      const fractionX = x - left, fractionY = y - top;
      for (let channel = 0; channel < 3; channel++) {
        const upper = pixel(left, top, channel) * (1 - fractionX) + pixel(right, top, channel) * fractionX;
        const lower = pixel(left, bottom, channel) * (1 - fractionX) + pixel(right, bottom, channel) * fractionX;
        data[3 * (row * width + column) + channel] = round(upper * (1 - fractionY) + lower * fractionY);
      }
    }
  }
  return { width, height, data };
}
