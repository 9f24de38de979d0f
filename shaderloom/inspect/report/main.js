// Put the parts together: the graph and the list first, the shaders when they are unpacked.

async function open() {
  const data = await unpack("data");
  const graph = new GraphView(data);
  const list = new CallList(data, (matches) => graph.mark(matches));
  const details = new Details(data);
  new MemoryView(data);
  window.report = { data, graph };
  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches("input, select, textarea");
    if (event.key === "/" && !typing) { byId("search").focus(); event.preventDefault(); }
    if (event.key === "Escape" && event.target === byId("search")) { byId("search").value = ""; list.filter(); byId("list").focus(); }
    if (event.key === "Enter" && event.target === byId("search") && list.order.length) { selection.set(list.order[0], "search"); byId("list").focus(); }
  });
  byId("details").replaceChildren(element("p", { className: "empty" }, "Choose a kernel: click in the graph or the list, or press Tab and the arrow keys."));
  const wanted = Number((location.hash.match(/^#call-(\d+)$/) || [])[1] ?? 0);
  if (wanted < data.calls.length) selection.set(wanted, "start");
  document.documentElement.dataset.state = "drawn";
  details.fill(await unpack("texts"));
  document.documentElement.dataset.state = "complete";
}

open().catch((error) => {
  const old = typeof DecompressionStream === "undefined" ? "This browser cannot unpack the data; a newer one can." : String(error);
  byId("details").replaceChildren(element("p", { className: "empty" }, old));
  throw error;
});
