// The graph of kernels on a canvas: moved, zoomed, searched, followed with the arrow keys.  Only what is seen is drawn.

class GraphView {
  constructor(data) {
    this.data = data;
    this.boxes = data.graph.boxes.map(([x, y, width, height]) => ({ x, y, width, height, to: [], from: [] }));
    this.edges = data.graph.edges.map(([source, target, tensor]) => ({ source, target, tensor }));
    for (const edge of this.edges) {
      this.boxes[edge.source].to.push(edge.target);
      this.boxes[edge.target].from.push(edge.source);
    }
    this.width = Math.max(1, ...this.boxes.map((box) => box.x + box.width));
    this.height = Math.max(1, ...this.boxes.map((box) => box.y + box.height));
    this.canvas = byId("canvas");
    this.view = { x: 0, y: 0, zoom: 1 };
    this.matches = null;
    this.pending = false;
    this.largest = {};
    for (const key of ["ns", "flops"]) this.largest[key] = Math.max(1, ...data.calls.map((call) => call[key] || 0));
    this.listen();
    this.start();
  }

  listen() {
    const canvas = this.canvas;
    let drag = null;
    canvas.addEventListener("pointerdown", (event) => {
      drag = { x: event.clientX, y: event.clientY, moved: false };
      canvas.setPointerCapture(event.pointerId);
      canvas.classList.add("dragging");
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!drag) { canvas.style.cursor = this.at(event) >= 0 ? "pointer" : ""; return; }
      const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
      if (Math.abs(dx) + Math.abs(dy) > 3) drag.moved = true;
      if (!drag.moved) return;
      this.move(-dx, -dy);
      drag.x = event.clientX;
      drag.y = event.clientY;
    });
    canvas.addEventListener("pointerup", (event) => {
      canvas.classList.remove("dragging");
      if (drag && !drag.moved) {
        const box = this.at(event);
        if (box >= 0) selection.set(this.callOf(box), "graph");
      }
      drag = null;
    });
    canvas.addEventListener("pointercancel", () => { drag = null; canvas.classList.remove("dragging"); });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const corner = canvas.getBoundingClientRect();
      this.zoomBy(Math.exp(-event.deltaY * 0.0016), event.clientX - corner.left, event.clientY - corner.top);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    byId("in").addEventListener("click", () => this.zoomBy(1.3));
    byId("out").addEventListener("click", () => this.zoomBy(1 / 1.3));
    byId("fit").addEventListener("click", () => this.fit());
    byId("colour").addEventListener("change", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(canvas);
    dark.addEventListener("change", () => this.draw());
    selection.listeners.push((call, origin) => { if (origin !== "graph") this.centre(call); this.draw(); });
  }

  /** The call that a box stands for: an input's first reader, an output's writer. */
  callOf(box) {
    if (box < this.data.calls.length) return box;
    return this.boxes[box].from[0] ?? this.boxes[box].to[0];
  }

  size() { return [this.canvas.clientWidth, this.canvas.clientHeight]; }

  /** Small graphs fit the window; of large ones the beginning is shown. */
  start() {
    this.fit();
    if (this.view.zoom < 0.45) {
      const [width] = this.size();
      this.view.zoom = 0.7;
      const first = this.boxes.reduce((best, box) => (box.y < best.y ? box : best));
      this.view.x = first.x + first.width / 2 - width / 2 / this.view.zoom;
      this.view.y = first.y - 30;
    }
    this.draw();
  }

  fit() {
    const [width, height] = this.size();
    this.view.zoom = Math.min(1, (width - 40) / this.width, (height - 40) / this.height);
    this.view.x = this.width / 2 - width / 2 / this.view.zoom;
    this.view.y = this.height / 2 - height / 2 / this.view.zoom;
    this.draw();
  }

  move(dx, dy) { this.view.x += dx / this.view.zoom; this.view.y += dy / this.view.zoom; this.draw(); }

  zoomBy(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const zoom = Math.min(3, Math.max(0.01, this.view.zoom * factor));
    this.view.x += x / this.view.zoom - x / zoom;
    this.view.y += y / this.view.zoom - y / zoom;
    this.view.zoom = zoom;
    this.draw();
  }

  centre(call) {
    const box = this.boxes[call];
    const [width, height] = this.size();
    if (this.view.zoom < 0.45) this.view.zoom = 0.7;
    this.view.x = box.x + box.width / 2 - width / 2 / this.view.zoom;
    this.view.y = box.y + box.height / 2 - height / 2 / this.view.zoom;
  }

  /** Left, top, width and height of a box on the canvas. */
  screen(number) {
    const box = this.boxes[number], { x, y, zoom } = this.view;
    return [(box.x - x) * zoom, (box.y - y) * zoom, box.width * zoom, box.height * zoom];
  }

  at(event) {
    const corner = this.canvas.getBoundingClientRect();
    const x = (event.clientX - corner.left) / this.view.zoom + this.view.x;
    const y = (event.clientY - corner.top) / this.view.zoom + this.view.y;
    return this.boxes.findIndex((box) => x >= box.x && x <= box.x + box.width && y >= box.y && y <= box.y + box.height);
  }

  key(event) {
    const [width, height] = this.size();
    const pans = { ArrowUp: [0, -height / 4], ArrowDown: [0, height / 4], ArrowLeft: [-width / 4, 0], ArrowRight: [width / 4, 0] };
    if (event.key === "+" || event.key === "=") this.zoomBy(1.3);
    else if (event.key === "-") this.zoomBy(1 / 1.3);
    else if (event.key === "0") this.fit();
    else if (event.key === "Enter") byId("details").focus();
    else if (event.key in pans && event.shiftKey) this.move(...pans[event.key]);
    else if (event.key in pans) this.follow(event.key);
    else return;
    event.preventDefault();
  }

  /** Select the next call along the data, or the neighbour in the same layer. */
  follow(key) {
    const count = this.data.calls.length;
    if (selection.call < 0) { selection.set(0, "keys"); return; }
    const present = this.boxes[selection.call];
    const calls = (boxes) => boxes.filter((box) => box < count);
    let next = -1;
    if (key === "ArrowDown") next = calls(present.to)[0] ?? -1;
    else if (key === "ArrowUp") next = calls(present.from)[0] ?? -1;
    else {
      const side = key === "ArrowLeft" ? -1 : 1;
      let nearest = Infinity;
      for (let box = 0; box < count; box++) {
        const distance = (this.boxes[box].x - present.x) * side;
        if (this.boxes[box].y === present.y && distance > 0 && distance < nearest) { nearest = distance; next = box; }
      }
    }
    if (next >= 0) { selection.set(next, "keys"); this.draw(); }
  }

  mark(matches) { this.matches = matches; this.draw(); }

  draw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; this.paint(); });
  }

  paint() {
    const { context, width, height } = sized(this.canvas);
    const { x, y, zoom } = this.view;
    const seen = { left: x, top: y, right: x + width / zoom, bottom: y + height / zoom };
    context.setTransform(context.getTransform().scale(zoom).translate(-x, -y));
    this.paintEdges(context, seen, zoom);
    const text = zoom > 0.3;
    this.boxes.forEach((box, number) => {
      if (box.x > seen.right || box.x + box.width < seen.left || box.y > seen.bottom || box.y + box.height < seen.top) return;
      this.paintBox(context, box, number, text);
    });
  }

  paintEdges(context, seen, zoom) {
    const chosen = [];
    context.lineWidth = Math.max(1, 0.7 / zoom);
    context.strokeStyle = colour("line");
    context.beginPath();
    for (const edge of this.edges) {
      const from = this.boxes[edge.source], to = this.boxes[edge.target];
      const x1 = from.x + from.width / 2, y1 = from.y + from.height, x2 = to.x + to.width / 2, y2 = to.y;
      if (Math.max(x1, x2) < seen.left || Math.min(x1, x2) > seen.right || y2 < seen.top || y1 > seen.bottom) continue;
      if (edge.source === selection.call || edge.target === selection.call) { chosen.push([x1, y1, x2, y2]); continue; }
      this.curve(context, x1, y1, x2, y2);
    }
    context.stroke();
    context.strokeStyle = colour("accent");
    context.lineWidth = Math.max(2, 1.4 / zoom);
    context.beginPath();
    for (const points of chosen) this.curve(context, ...points);
    context.stroke();
  }

  curve(context, x1, y1, x2, y2) {
    const bend = Math.min((y2 - y1) / 2, 60);
    context.moveTo(x1, y1);
    context.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2);
  }

  paintBox(context, box, number, text) {
    const call = this.data.calls[number];
    context.globalAlpha = this.matches && call && !this.matches.has(number) ? 0.25 : 1;
    context.fillStyle = call ? this.colourOf(call) : colour("raised");
    const isMatch = Boolean(call && this.matches?.has(number));
    context.strokeStyle = number === selection.call || isMatch ? colour("accent") : colour("line");
    // What was searched for has to be seen from afar, too.
    context.lineWidth = isMatch ? Math.max(3, 2 / this.view.zoom) : number === selection.call ? 3 : 1;
    context.beginPath();
    context.roundRect(box.x, box.y, box.width, box.height, call ? 6 : 13);
    context.fill();
    context.stroke();
    if (text) this.write(context, box, call, number);
    context.globalAlpha = 1;
  }

  write(context, box, call, number) {
    context.fillStyle = colour("ink");
    context.textBaseline = "top";
    const line = (content, x, y) => context.fillText(this.cut(content, (box.width - 2 * 8) / 6.1), x, y);
    if (!call) {
      const [kind, tensor] = this.data.graph.ports[number - this.data.calls.length];
      context.font = "12px system-ui, sans-serif";
      line(`${kind} ${this.data.tensors[tensor].name}`, box.x + 12, box.y + 7);
      return;
    }
    context.font = "600 12px system-ui, sans-serif";
    const time = call.ns === undefined ? "" : `  ${timeText(call.ns)}`;
    line(`${number}  ${this.data.kernels[call.kernel].template}${time}`, box.x + 8, box.y + 6);
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = colour("soft");
    const lines = Math.round((box.height - 30) / 14);
    const names = call.origins.length > lines ? [...call.origins.slice(0, lines - 1), `and ${call.origins.length - lines + 1} more`] : call.origins;
    names.forEach((origin, index) => line(this.brief(origin), box.x + 8, box.y + 24 + 14 * index));
  }

  /** An ONNX node in a box: operator, number, and the end of its name, which tells most. */
  brief(origin) {
    const match = origin.match(/^(\S+)(?: '(.*)')? \((?:main|(.*)) node (\d+)\)$/);
    if (!match) return origin;
    const [, operator, name, graph, number] = match;
    const head = `${operator} #${number}${graph ? ` ${graph}` : ""}`;
    const room = 32 - head.length;
    if (!name || room < 6) return head;
    return `${head} ${name.length > room ? `…${name.slice(name.length - room + 1)}` : name}`;
  }

  cut(content, letters) { return content.length > letters ? `${content.slice(0, letters - 1)}…` : content; }

  colourOf(call) {
    const key = byId("colour").value;
    if (key === "family") return fill(hueOf(this.data.kernels[call.kernel].template));
    const share = Math.sqrt((call[key] || 0) / this.largest[key]);
    return dark.matches ? `hsl(${50 - 45 * share} ${20 + 50 * share}% ${20 + 14 * share}%)` : `hsl(${50 - 45 * share} 90% ${96 - 30 * share}%)`;
  }
}
