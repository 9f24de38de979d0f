"""A script for pages that test the runner."""

#: Opens the bundle once a page, and gives arrays as lists: numbers, or texts of 64-bit integers
SETUP = """
globalThis.open = async (options) => {
  const { load } = await import("/shaderloom.js");
  return globalThis.session ??= await load("/bundle/", options);
};
globalThis.list = ({ dtype, dims, data }) => ({
  dtype, dims, type: data.constructor.name,
  data: Array.from(data, (value) => typeof value === "bigint" ? `${value}` : value),
});
globalThis.lists = (tensors) => {
  return Object.fromEntries(Object.entries(tensors).map(([name, tensor]) => [name, list(tensor)]));
};
"""
