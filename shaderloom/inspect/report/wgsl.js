// WGSL with colours: a tokenizer for what generated shaders hold, and lines with numbers.

const KEYWORDS = new Set(("alias break case const const_assert continue continuing default diagnostic discard else enable "
  + "false fn for if let loop override requires return struct switch true var while").split(" "));
const TYPES = /^(bool|[iuf](16|32|64)|vec[234]|mat[234]x[234]|array|atomic|ptr|vec[234][iufh])$/;
const TOKEN = /(\/\/.*)|(@\w+)|(\b\d[\w.]*(?:[eE][+-]?\d+[fh]?)?)|([A-Za-z_]\w*)|(\s+|[^\w\s])/g;

/** One line as coloured parts. */
function colouredLine(text) {
  const parts = [];
  for (const [whole, comment, attribute, number, name] of text.matchAll(TOKEN)) {
    let kind = "";
    if (comment) kind = "comment";
    else if (attribute) kind = "attribute";
    else if (number) kind = "number-token";
    else if (name && KEYWORDS.has(name)) kind = "keyword";
    else if (name && TYPES.test(name)) kind = "type";
    else if (name && text.includes(`${name}(`)) kind = "function";
    parts.push(kind ? element("span", { className: kind }, whole) : whole);
  }
  return parts;
}

/** A shader with comments: [line before which it stands, text]. */
function shaderElement(wgsl, comments) {
  const before = new Map();
  for (const [line, text] of comments) before.set(line, [...(before.get(line) || []), text]);
  const pre = element("pre", { tabIndex: 0, ariaLabel: "WGSL" });
  wgsl.replace(/\n$/, "").split("\n").forEach((line, number) => {
    for (const text of before.get(number) || []) {
      pre.append(element("span", { className: "line", "data-number": "" }, element("span", { className: "comment" }, text)));
    }
    pre.append(element("span", { className: "line", "data-number": number + 1 }, ...colouredLine(line), "\n"));
  });
  return pre;
}
