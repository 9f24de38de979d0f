/** Arithmetic as Python and numpy do it. */

/** The nearest integer; of two that are equally near the even one. */
export function round(value) {
  const rounded = Math.round(value);
  return rounded - value === 0.5 && rounded % 2 !== 0 ? rounded - 1 : rounded;
}

/** The remainder with the sign of the divisor. */
export function modulo(value, divisor) {
  const rest = value % divisor;
  return rest !== 0 && rest < 0 !== divisor < 0 ? rest + divisor : rest;
}

export const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
