// The list of calls: searched, sorted, and only as many rows in the page as fit.

const ROW = 40;

class CallList {
  constructor(data, onFilter) {
    this.data = data;
    this.onFilter = onFilter;
    this.box = byId("list");
    this.rows = byId("rows");
    this.largest = Math.max(1, ...data.calls.map((call) => call.ns || 0));
    this.texts = data.calls.map((call, number) => this.searchText(call, number));
    this.order = data.calls.map((_, number) => number);
    byId("search").addEventListener("input", () => this.filter());
    byId("sort").addEventListener("change", () => this.filter());
    this.box.addEventListener("scroll", () => this.draw());
    this.box.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.box);
    selection.listeners.push((call) => { this.reveal(call); this.draw(); });
    this.filter();
  }

  searchText(call, number) {
    const kernel = this.data.kernels[call.kernel];
    const names = call.operands.map((operand) => this.data.tensors[operand].name);
    return [number, kernel.id, kernel.template, call.label, ...call.origins, ...names].join("\n").toLowerCase();
  }

  filter() {
    const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const key = byId("sort").value;
    this.order = this.texts.flatMap((text, number) => (words.every((word) => text.includes(word)) ? [number] : []));
    if (key !== "order") this.order.sort((a, b) => (this.data.calls[b][key] || 0) - (this.data.calls[a][key] || 0) || a - b);
    const all = this.data.calls.length;
    byId("count").textContent = words.length ? `${this.order.length} of ${all} calls` : `${all} calls`;
    this.box.scrollTop = 0;
    this.draw();
    this.onFilter(words.length ? new Set(this.order) : null);
  }

  draw() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - 4);
    const last = Math.min(this.order.length, Math.ceil((this.box.scrollTop + this.box.clientHeight) / ROW) + 4);
    this.rows.style.height = `${this.order.length * ROW}px`;
    this.rows.replaceChildren(...this.order.slice(first, last).map((call, index) => this.row(call, first + index)));
    const active = this.rows.querySelector('[aria-selected="true"]');
    if (active) this.box.setAttribute("aria-activedescendant", active.id);
    else this.box.removeAttribute("aria-activedescendant");
  }

  row(number, place) {
    const call = this.data.calls[number];
    const facts = [this.data.kernels[call.kernel].template, flopsText(call.flops)];
    if (call.ns !== undefined) facts.push(timeText(call.ns));
    const entry = element("div", {
      id: `row-${number}`, className: "row", role: "option", ariaSelected: String(number === selection.call),
      ariaSetSize: String(this.order.length), ariaPosInSet: String(place + 1), title: call.origins.join("\n"),
      onclick: () => selection.set(number, "list"),
    }, element("b", {}, `${number}  ${call.label}`), element("span", {}, facts.join(" · ")));
    entry.style.top = `${place * ROW}px`;
    if (call.ns !== undefined) {
      const bar = element("i", { className: "bar" });
      bar.style.width = `${(100 * call.ns) / this.largest}%`;
      entry.append(bar);
    }
    return entry;
  }

  reveal(call) {
    const place = this.order.indexOf(call);
    if (place < 0) return;
    const top = place * ROW;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (top + ROW > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = top + ROW - this.box.clientHeight;
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.box.clientHeight / ROW) - 1);
    const present = this.order.indexOf(selection.call);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key === "Enter") { byId("details").focus(); event.preventDefault(); return; }
    if (!(event.key in steps) || !this.order.length) return;
    const place = Math.min(Math.max(present + steps[event.key], 0), this.order.length - 1);
    selection.set(this.order[place], "list");
    event.preventDefault();
  }
}
