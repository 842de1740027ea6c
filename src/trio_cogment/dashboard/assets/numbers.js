// The numbers of a payload that make curves; as `numbers` in `_payloads.py` finds them.
// @ts-check

import { numbersOf } from "./payload.js";

const MAX_NUMBERS = 8;

/**
 * @param {any} value
 * @returns {[string, number][]}
 */
export function numbersIn(value) {
  /** @type {[string, number][]} */
  const found = [];
  collect(value, "", found);
  return found.slice(0, MAX_NUMBERS);
}

/**
 * A number of 32 bits with the fewest digits that tell it from others of 32 bits; as `shortest` in `json_text.py`.
 * @param {number} value
 */
export function shortest(value) {
  for (let digits = 6; digits < 9; digits++) {
    const found = Number(value.toPrecision(digits));
    if (Math.fround(found) === value) return found;
  }
  return Number(value.toPrecision(9));
}

/** @param {any} value @param {string} name @param {[string, number][]} found */
function collect(value, name, found) {
  if (found.length >= MAX_NUMBERS || value === null || value === undefined) return;
  if (typeof value === "number" || typeof value === "boolean") {
    found.push([name, Number(value)]);
  } else if (Array.isArray(value)) {
    value.forEach((item, index) => collect(item, `${name}[${index}]`, found));
  } else if (typeof value === "object") {
    if ("$array" in value) {
      const size = value.$array.shape.reduce((/** @type {number} */ a, /** @type {number} */ b) => a * b, 1);
      if (size > MAX_NUMBERS) return;
      const read = numbersOf(value.$array);
      const numbers = value.$array.dtype === "f4" ? read.map(shortest) : read;
      const exact = (/** @type {number} */ item) => value.$array.dtype[0] === "f" || Number.isSafeInteger(item);
      numbers.forEach((item, index) => exact(item) && found.push([size === 1 ? name : `${name}[${index}]`, item]));
    } else if ("type" in value && "value" in value && Object.keys(value).length === 2) {
      collect(value.value, name, found);
    } else if (!("hex" in value) && !("$image" in value)) {
      for (const [key, item] of Object.entries(value)) collect(item, name ? `${name}.${key}` : key, found);
    }
  }
}
