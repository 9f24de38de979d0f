/** Connected components of a mask; mirrors examples/ocr/components.py. */

/**
 * The 8-connected components of a mask (`mask(column, row)` tells), each as its horizontal runs
 * {row, start, end}, in order of their first run.
 */
export function componentRuns(mask, width, height) {
  const runs = [], rowStarts = [];
  for (let row = 0; row < height; row++) {
    rowStarts.push(runs.length);
    for (let column = 0; column < width; column++) {
      if (!mask(column, row)) continue;
      const start = column;
      while (column < width && mask(column, row)) column++;
      runs.push({ row, start, end: column });
    }
  }
  rowStarts.push(runs.length);
  const parents = runs.map((_, index) => index); // a forest of disjoint sets
  const root = (index) => {
    while (parents[index] !== index) index = parents[index] = parents[parents[index]];
    return index;
  };
  for (let row = 1; row < height; row++) {
    let above = rowStarts[row - 1], current = rowStarts[row];
    while (above < rowStarts[row] && current < rowStarts[row + 1]) {
      if (runs[above].start <= runs[current].end && runs[current].start <= runs[above].end) {
        const [first, second] = [root(above), root(current)];
        parents[Math.max(first, second)] = Math.min(first, second);
      }
      if (runs[above].end < runs[current].end) above++;
      else current++;
    }
  }
  const components = new Map();
  for (const [index, run] of runs.entries()) {
    const key = root(index);
    if (!components.has(key)) components.set(key, []);
    components.get(key).push(run);
  }
  return [...components.values()];
}

/** The centres of the pixels at both ends of each run: their hull is that of all the pixels. */
export function outlinePoints(runs) {
  return runs.flatMap(({ row, start, end }) => [[start + 0.5, row + 0.5], [end - 0.5, row + 0.5]]);
}
