// One call: its ONNX nodes, numbers, operands, configurations, neighbours, and its shader.

class Details {
  constructor(data) {
    this.data = data;
    this.texts = null;
    this.box = byId("details");
    selection.listeners.push((call) => this.show(call));
  }

  /** The shaders have arrived. */
  fill(texts) {
    this.texts = texts;
    if (selection.call >= 0) this.show(selection.call);
  }

  show(number) {
    const call = this.data.calls[number], kernel = this.data.kernels[call.kernel];
    this.box.replaceChildren(
      element("h2", {}, `Call ${number}: ${call.label}`),
      this.badges(call, kernel),
      this.nodes(call),
      element("h3", {}, "Numbers"), this.numbers(call, kernel),
      element("h3", {}, "Bindings"), this.bindings(call, kernel),
      ...this.configurations(call, kernel),
      element("h3", {}, "Why neighbours are kernels of their own"), this.neighbours(number),
      element("h3", {}, `WGSL, kernel ${kernel.id}, ${kernel.lines} lines`), this.shader(number, call),
    );
    this.box.scrollTop = 0;
  }

  badges(call, kernel) {
    const needs = [...kernel.needs, ...call.limits];
    const paragraph = element("p", {});
    if (!needs.length) paragraph.append(element("span", { className: "badge web" }, "runs within WebGPU's default limits"));
    for (const need of needs) paragraph.append(element("span", { className: "badge native" }, `needs ${need}`));
    if (call.in_place !== null) paragraph.append(element("span", { className: "badge" }, "in place"));
    return paragraph;
  }

  nodes(call) {
    const list = element("ul", {});
    // A node may be in several parts, as a product with a view of its operand is: it belongs to the foremost.
    for (const [title, nodes] of [["read through", call.prologue], ["computed", call.anchor], ["applied to the result", call.epilogue]]) {
      for (const node of nodes) list.append(element("li", {}, `${node} `, element("span", { className: "why" }, title)));
    }
    return list;
  }

  table(head, rows, numeric = []) {
    const cell = (tag, value, column) => element(tag, { className: numeric.includes(column) ? "number" : "" }, value);
    return element("table", {},
      ...(head ? [element("thead", {}, element("tr", {}, ...head.map((value, column) => cell("th", value, column))))] : []),
      element("tbody", {}, ...rows.map((row) => element("tr", { className: row.chosen ? "chosen" : "" },
        ...row.map((value, column) => cell("td", value, column))))));
  }

  numbers(call, kernel) {
    const rows = [
      ["grid", `${call.grid.join(" × ")} workgroups of ${kernel.workgroup.join(" × ")} threads`],
      ["workgroup memory", bytesText(kernel.workgroup_bytes)],
      ["arithmetic", flopsText(call.flops)],
      ["memory traffic", `${bytesText(call.bytes)} at least`],
      ["intensity", `${(call.flops / Math.max(call.bytes, 1)).toPrecision(3)} FLOP a byte`],
    ];
    const profile = this.data.profile;
    if (call.ns !== undefined) {
      const share = (100 * call.ns) / Math.max(profile.ns, 1);
      rows.push(["time", `${timeText(call.ns)} (${profile.method}), ${share.toFixed(1)} % of a run`]);
      rows.push(["reached", `${flopsText((call.flops / call.ns) * 1e9)}/s, ${bytesText((call.bytes / call.ns) * 1e9)}/s`]);
      if (call.roofline !== null) rows.push(["of the roofline", this.roof(call, profile)]);
    }
    return this.table(null, rows);
  }

  roof(call, profile) {
    const bound = call.flops / profile.flops_per_second > call.bytes / profile.bytes_per_second ? "arithmetic" : "memory traffic";
    return `${(100 * call.roofline).toFixed(0)} %, bound by ${bound}; the device reaches `
      + `${flopsText(profile.flops_per_second)}/s and ${bytesText(profile.bytes_per_second)}/s`;
  }

  bindings(call, kernel) {
    return element("ul", {}, ...kernel.bindings.map(([name, access, type], index) => {
      const tensor = this.data.tensors[call.operands[index]];
      if (name === "problem") return element("li", {}, element("code", {}, name), " sizes of this call, which other calls of the kernel have otherwise");
      if (!tensor || access === "uniform") return element("li", {}, element("code", {}, name), " the dynamic dimensions");
      const how = access === "read" ? `read as ${type}` : `written as ${type}`;
      const over = access === "read" || call.in_place === null ? [] : [`overwrites ${this.data.tensors[call.in_place].name || "a tensor without a name"}`];
      const float32 = tensor.float32 ? [`float32: ${tensor.float32}`] : [];
      const facts = [`${tensor.dtype} ${tensor.shape}`, ...float32, `layout ${tensor.layout || "of a scalar"}`, tensor.kind, how, ...over].join("; ");
      return element("li", {}, element("code", {}, name), ` ${tensor.name || "(no name)"} `, element("span", { className: "why" }, facts));
    }));
  }

  configurations(call, kernel) {
    const config = Object.entries(kernel.config).map(([name, value]) => `${name} ${value}`).join(", ");
    if (!call.alternatives.length) return config ? [element("h3", {}, "Configuration"), element("p", {}, config)] : [];
    const rows = call.alternatives.map((item) => Object.assign(
      [item.config, item.cost === null ? "by rule" : item.cost.toFixed(3)], { chosen: Boolean(item.chosen) }));
    return [element("h3", {}, "Configuration and alternatives (cost relative to the best)"), this.table(["configuration", "cost"], rows, [1])];
  }

  neighbours(number) {
    const list = element("ul", {}), count = this.data.calls.length;
    for (const [source, target, tensor, reasons] of this.data.graph.edges) {
      if (source !== number && target !== number) continue;
      const other = source === number ? target : source;
      const name = this.data.tensors[tensor].name || "(no name)";
      if (other >= count) {
        list.append(element("li", {}, `${other < count || source === number ? "gives" : "reads"} the model's ${this.data.graph.ports[other - count][0]} ${name}`));
        continue;
      }
      const item = element("li", {}, source === number ? "gives " : "reads ", name, source === number ? " to " : " from ", this.link(other));
      const why = reasons.length ? reasons : ["the value is in memory: both kernels have loops of their own"];
      item.append(element("ul", { className: "why" }, ...why.map((reason) => element("li", {}, reason))));
      list.append(item);
    }
    return list;
  }

  link(call) {
    const text = `call ${call}, ${this.data.calls[call].label}`;
    return element("button", { className: "link", type: "button", onclick: () => selection.set(call, "details") }, text);
  }

  shader(number, call) {
    if (!this.texts) return element("p", { className: "empty" }, "Reading…");
    return shaderElement(this.texts.wgsl[call.kernel], this.texts.comments[number]);
  }
}
