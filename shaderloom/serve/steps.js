/** The steps of a program as a list for people. */

/** A size as text: 2·m + 1 for ["+", ["*", 2, "m"], 1]. */
export function sizeText(size) {
  if (!Array.isArray(size)) return String(size);
  const [operator, ...operands] = size;
  const texts = operands.map((operand) => {
    const needsBrackets = Array.isArray(operand) && !["min", "max"].includes(operand[0]) && operator !== "+";
    return needsBrackets ? `(${sizeText(operand)})` : sizeText(operand);
  });
  if (operator === "min" || operator === "max") return `${operator}(${texts.join(", ")})`;
  return texts.join(operator === "*" ? "·" : ` ${operator} `);
}

/** A value with its type and shape. */
const portText = ({ name, dtype, shape }) => `${name}: ${dtype} ${shape.map(sizeText).join("×") || "scalar"}`;

const RANGE = ({ low, high, step }) => `${low} to ${high}${step === 1 ? "" : ` in steps of ${step}`}`;

/**
 * The elements that show the steps of a program, nested as its branches and loops are.
 *
 * `element(name, properties, ...children)` makes an element; `plans` has the loaded plans of stages by key.
 */
export function stepList(element, program, plans) {
  const list = (steps) => element("ol", { className: "steps" }, ...steps.map(item));
  const line = (title, text) => [
    element("strong", { textContent: title }), " ", element("span", { className: "quiet", textContent: text }),
  ];
  const side = (title, steps) => element("div", {}, element("p", { className: "quiet", textContent: title }), list(steps));

  function item(step) {
    const node = element("li", {}, ...(SHOWN[step.kind]?.(step) ?? line(step.kind, "")));
    node.dataset.step = step.kind;
    return node;
  }

  const SHOWN = {
    stage({ plan, software, outputs }) {
      const loaded = plans.get(plan) ?? plans.get(software);
      const calls = loaded?.commands.reduce((sum, command) => sum + command.calls.length, 0);
      const count = calls === undefined ? "" : ` of ${calls} ${calls === 1 ? "call" : "calls"}`;
      return line(`Stage${count}`, `gives ${outputs.map(portText).join(", ")}`);
    },
    read: ({ value, symbols }) => line(
      `Read ${value}`, `as ${symbols.map((symbol) => `${symbol} (${RANGE(program.ranges[symbol])})`).join(", ")}`),
    alias: ({ value, source }) => line(value, `is ${source}`),
    refuse: ({ reason }) => line("Refuse", reason),
    branch: ({ condition, true: then, false: otherwise }) => [
      ...line(`Branch on ${condition}`, ""), side("true", then), side("false", otherwise),
    ],
    compare: ({ test, left, right, true: then, false: otherwise }) => [
      ...line(`${sizeText(left)} ${test === "less" ? "<" : "="} ${sizeText(right)}?`, ""),
      side("yes", then), side("no", otherwise),
    ],
    loop({ count, symbol, carried, stacked, steps }) {
      const most = count === null ? program.ranges[symbol].high : sizeText(count);
      const end = symbol === null ? "" : `, ends by a condition as ${symbol}`;
      const names = carried.map(({ name }) => name).join(", ") || "nothing";
      const rows = stacked.map(({ result }) => result).join(", ");
      return [
        ...line(`Loop of at most ${most}`, `carries ${names}${rows && `, stacks ${rows}`}${end}`), list(steps),
      ];
    },
  };
  return list(program.steps);
}
