/** Pictures: {width, height, data}, `data` a Uint8Array of red, green, blue, row by row. */

/** The pixels of a picture file or blob, turned as the camera's orientation tag says. */
export async function readPicture(blob) {
  const bitmap = await createImageBitmap(blob, { colorSpaceConversion: "none" });
  const { width, height } = bitmap;
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "white"; // behind what is transparent
  context.fillRect(0, 0, width, height);
  context.drawImage(bitmap, 0, 0);
  bitmap.close();
  const pixels = context.getImageData(0, 0, width, height).data;
  const data = new Uint8Array(3 * width * height);
  for (let from = 0, to = 0; from < pixels.length; from += 4, to += 3) {
    data[to] = pixels[from];
    data[to + 1] = pixels[from + 1];
    data[to + 2] = pixels[from + 2];
  }
  return { width, height, data };
}

/** A picture turned by half a turn. */
export function turned({ width, height, data }) {
  const result = new Uint8Array(data.length);
  for (let from = 0, to = data.length - 3; from < data.length; from += 3, to -= 3) {
    result.set(data.subarray(from, from + 3), to);
  }
  return { width, height, data: result };
}

/** The first columns of a picture. */
export function leftPart({ width, height, data }, columns) {
  const shown = Math.min(width, columns);
  const result = new Uint8Array(3 * shown * height);
  for (let row = 0; row < height; row++) {
    result.set(data.subarray(3 * row * width, 3 * (row * width + shown)), 3 * row * shown);
  }
  return { width: shown, height, data: result };
}

/**
 * Resize with a triangle filter that widens when it shrinks, rows first, in fixed point and with 8 bits in between: bit
 * for bit what Pillow's BILINEAR gives, which the Python example uses (save where Pillow takes columns first).
 */
export function resize(picture, width, height) {
  const rows = resizeRows(picture, width);
  return transpose(resizeRows(transpose(rows), height));
}

const PRECISION = 22; // bits behind the point

function resizeRows({ width, height, data }, target) {
  const weights = triangleWeights(width, target);
  const result = new Uint8Array(3 * target * height);
  for (let row = 0; row < height; row++) {
    for (let column = 0; column < target; column++) {
      const { first, values } = weights[column];
      let red = 1 << (PRECISION - 1), green = red, blue = red;
      for (let index = 0, from = 3 * (row * width + first); index < values.length; index++, from += 3) {
        red += data[from] * values[index];
        green += data[from + 1] * values[index];
        blue += data[from + 2] * values[index];
      }
      const to = 3 * (row * target + column);
      result[to] = byte(red);
      result[to + 1] = byte(green);
      result[to + 2] = byte(blue);
    }
  }
  return { width: target, height, data: result };
}

const byte = (sum) => Math.min(255, Math.max(0, sum >> PRECISION));

/** For each pixel of the result the pixels that it is made of, from `first`, and their weights. */
function triangleWeights(source, target) {
  const scale = source / target, filterScale = Math.max(scale, 1);
  return Array.from({ length: target }, (_, position) => {
    const centre = (position + 0.5) * scale;
    const first = Math.max(0, Math.trunc(centre - filterScale + 0.5));
    const end = Math.min(source, Math.trunc(centre + filterScale + 0.5));
    const raw = Array.from({ length: end - first }, (_, index) => {
      const distance = Math.abs((index + first - centre + 0.5) * (1 / filterScale));
      return distance < 1 ? 1 - distance : 0;
    });
    const total = raw.reduce((sum, weight) => sum + weight, 0);
    return { first, values: Int32Array.from(raw, (weight) => Math.trunc(0.5 + (weight / total) * (1 << PRECISION))) };
  });
}

function transpose({ width, height, data }) {
  const result = new Uint8Array(data.length);
  for (let row = 0, from = 0; row < height; row++) {
    for (let column = 0; column < width; column++, from += 3) {
      const to = 3 * (column * height + row);
      result[to] = data[from];
      result[to + 1] = data[from + 1];
      result[to + 2] = data[from + 2];
    }
  }
  return { width: height, height: width, data: result };
}

/**
 * A picture as normalised planes [1, 3, height, width] of float32, in the order blue, green, red that the networks were
 * trained with; `mean` and `deviation` are in that order too. The rest to the right and below is zero, the mean.
 */
export function networkInput(picture, mean, deviation, height, width) {
  const values = new Float32Array(3 * height * width);
  const { fround } = Math;
  const table = [0, 1, 2].map((plane) => Float32Array.from({ length: 256 }, (_, level) =>
    fround(fround(fround(level) / fround(255)) - fround(mean[plane])) / fround(deviation[plane])));
  for (let row = 0; row < picture.height; row++) {
    for (let column = 0; column < picture.width; column++) {
      const from = 3 * (row * picture.width + column), to = row * width + column;
      for (let plane = 0; plane < 3; plane++) {
        values[plane * height * width + to] = table[plane][picture.data[from + 2 - plane]];
      }
    }
  }
  return { data: values, dims: [1, 3, height, width] };
}
