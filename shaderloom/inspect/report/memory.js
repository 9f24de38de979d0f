// Activation memory over the calls of a run: every block is a tensor from the call that writes it to the last reader.

class MemoryView {
  constructor(data) {
    this.data = data;
    this.canvas = byId("memory");
    this.total = Math.max(1, data.memory.buffers.reduce((sum, [, size]) => sum + size, 0));
    this.base = new Map();
    let base = 0;
    for (const [name, size] of data.memory.buffers) { this.base.set(name, base); base += size; }
    const { planned_bytes: planned, naive_bytes: naive, lower_bound_bytes: least, in_place: inPlace } = data.summary;
    if (planned !== null && naive !== null) {
      byId("memory-facts").textContent = `${bytesText(planned)} planned, ${bytesText(naive)} with a buffer for every tensor `
        + `(${(naive / Math.max(planned, 1)).toFixed(1)}×), ${bytesText(least)} at least; ${inPlace} calls in place; `
        + `weights ${bytesText(data.summary.weight_bytes)}`;
    }
    this.canvas.addEventListener("pointermove", (event) => this.hover(this.at(event)));
    this.canvas.addEventListener("pointerleave", () => this.hover(null));
    this.canvas.addEventListener("click", (event) => {
      const block = this.at(event);
      if (block) selection.set(block[4], "memory");
    });
    new ResizeObserver(() => this.paint()).observe(this.canvas);
    dark.addEventListener("change", () => this.paint());
    selection.listeners.push(() => this.paint());
    this.paint();
  }

  scales() {
    const width = this.canvas.clientWidth - 28, height = this.canvas.clientHeight - 8;
    return { column: width / Math.max(this.data.calls.length, 1), row: height / this.total, left: 14, top: 2 };
  }

  box([, buffer, offset, size, first, last]) {
    const { column, row, left, top } = this.scales();
    return [left + first * column, top + (this.base.get(buffer) + offset) * row, (last - first + 1) * column, size * row];
  }

  at(event) {
    const corner = this.canvas.getBoundingClientRect();
    const x = event.clientX - corner.left, y = event.clientY - corner.top;
    for (const block of [...this.data.memory.blocks].reverse()) {
      const [left, top, width, height] = this.box(block);
      if (x >= left && x <= left + width && y >= top && y <= top + Math.max(height, 2)) return block;
    }
    return null;
  }

  hover(block) {
    if (!block) { byId("memory-hover").textContent = ""; return; }
    const [tensor, buffer, offset, size, first, last] = block, row = this.data.tensors[tensor];
    byId("memory-hover").textContent = `${row.name || "(no name)"}: ${row.dtype} ${row.shape}, ${bytesText(size)} at ${offset} of ${buffer}, calls ${first} to ${last}`;
  }

  paint() {
    const { context, height } = sized(this.canvas);
    const { column, row, left, top } = this.scales();
    for (const block of this.data.memory.blocks) {
      const call = this.data.calls[block[4]];
      const [x, y, width, tall] = this.box(block);
      context.fillStyle = fill(hueOf(this.data.kernels[call.kernel].template));
      context.strokeStyle = block[4] === selection.call ? colour("accent") : colour("line");
      context.lineWidth = block[4] === selection.call ? 2 : 0.5;
      context.fillRect(x, y, Math.max(width, 1), Math.max(tall, 1));
      context.strokeRect(x, y, Math.max(width, 1), Math.max(tall, 1));
    }
    context.strokeStyle = colour("soft");
    context.lineWidth = 1;
    context.beginPath();
    for (const [name] of this.data.memory.buffers) {
      const y = top + this.base.get(name) * row;
      context.moveTo(left, y);
      context.lineTo(left + column * this.data.calls.length, y);
    }
    context.stroke();
    if (selection.call >= 0) {
      context.fillStyle = colour("accent");
      context.globalAlpha = 0.25;
      context.fillRect(left + selection.call * column, 0, Math.max(column, 2), height);
      context.globalAlpha = 1;
    }
  }
}
