/** Pictures as tensors of models that look at pictures. */

/** What a model may expect of pixels: {mean, deviation} of red, green, blue, each value first divided by 255. */
export const PIXEL_VALUES = {
  "ImageNet mean and deviation": { mean: [0.485, 0.456, 0.406], deviation: [0.229, 0.224, 0.225] },
  "0 to 1": { mean: [0, 0, 0], deviation: [1, 1, 1] },
  "-1 to 1": { mean: [0.5, 0.5, 0.5], deviation: [0.5, 0.5, 0.5] },
  "0 to 255": { mean: [0, 0, 0], deviation: [1 / 255, 1 / 255, 1 / 255] },
};

/** The input that takes pictures, {name, dims}: the only one, float32, 1×3×H×W or 1×1×H×W; else undefined. */
export function pictureInput(inputs, shapes) {
  const names = Object.keys(shapes);
  if (names.length !== 1) return undefined;
  const dims = shapes[names[0]];
  const { dtype } = inputs.find((port) => port.name === names[0]) ?? {};
  const fits = dtype === "float32" && dims.length === 4 && dims.every((size) => Number.isInteger(size)) &&
    dims[0] === 1 && (dims[1] === 3 || dims[1] === 1) && dims[2] >= 8 && dims[3] >= 8;
  return fits ? { name: names[0], dims } : undefined;
}

/** The middle of a picture file as {data, dims}; it is drawn on `canvas` as the model sees it. */
export async function pictureFeed(file, dims, { mean, deviation }, canvas) {
  const [, channels, height, width] = dims;
  let picture;
  try {
    picture = await createImageBitmap(file);
  } catch {
    throw new Error(`${file.name} is not a picture that this browser can read`);
  }
  Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const scale = Math.max(width / picture.width, height / picture.height);
  const [drawnWidth, drawnHeight] = [picture.width * scale, picture.height * scale];
  context.imageSmoothingQuality = "high";
  context.drawImage(picture, (width - drawnWidth) / 2, (height - drawnHeight) / 2, drawnWidth, drawnHeight);
  picture.close();
  const pixels = context.getImageData(0, 0, width, height).data;
  const data = new Float32Array(channels * height * width);
  for (let pixel = 0; pixel < height * width; pixel++) {
    const colour = [0, 1, 2].map((channel) => (pixels[4 * pixel + channel] / 255 - mean[channel]) / deviation[channel]);
    if (channels === 3) colour.forEach((value, channel) => { data[channel * height * width + pixel] = value; });
    else data[pixel] = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2];
  }
  return { data, dims };
}

/** Draw a plane of numbers in grey, its least value black and its largest white. */
export function drawPlane(canvas, data, width, height) {
  let low = Infinity, high = -Infinity;
  for (const value of data) [low, high] = [Math.min(low, value), Math.max(high, value)];
  const image = new ImageData(width, height);
  for (let pixel = 0; pixel < width * height; pixel++) {
    const grey = (255 * (data[pixel] - low)) / (high - low || 1);
    image.data.set([grey, grey, grey, 255], 4 * pixel);
  }
  Object.assign(canvas, { width, height });
  canvas.getContext("2d").putImageData(image, 0, 0);
}
