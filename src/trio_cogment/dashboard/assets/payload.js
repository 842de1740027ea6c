// Payloads of participants: fields, pictures, arrays as images or bars, or digits; see `_payloads.py`.
// @ts-check

import { bytes, html, useEffect, useRef } from "../../assets/client.js";

/** @typedef {{dtype: string, shape: number[], data: string}} Packed */

const MAX_BARS = 256;
const MAX_PIXELS = 512;
/** The width of a bar, if there is room. */
const BAR_PIXELS = 24;
/** Types of these say nothing that their content does not say. */
const WELL_KNOWN = "google.protobuf.";

/** @param {string} text */
function decoded(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

/**
 * @param {Packed} packed
 * @returns {number[]}
 */
export function numbersOf({ dtype, data }) {
  const raw = decoded(data);
  const view = new DataView(raw.buffer);
  const size = Number(dtype.slice(1));
  /** @type {Record<string, (at: number) => number>} */
  const readers = {
    f4: (at) => view.getFloat32(at, true),
    f8: (at) => view.getFloat64(at, true),
    i1: (at) => view.getInt8(at),
    i2: (at) => view.getInt16(at, true),
    i4: (at) => view.getInt32(at, true),
    i8: (at) => Number(view.getBigInt64(at, true)),
    u1: (at) => view.getUint8(at),
    u2: (at) => view.getUint16(at, true),
    u4: (at) => view.getUint32(at, true),
    u8: (at) => Number(view.getBigUint64(at, true)),
    b1: (at) => view.getUint8(at),
  };
  const read = readers[dtype];
  return Array.from({ length: Math.floor(raw.length / size) }, (_, index) => read(index * size));
}

/**
 * The first numbers of an array as people read them: integers with all their digits, others with six.
 * @param {Packed} packed
 * @param {number} most
 * @returns {string[]}
 */
function textsOf(packed, most) {
  const values = numbersOf(packed).slice(0, most);
  if (packed.dtype[0] === "f") return values.map((value) => String(Number(value.toPrecision(6))));
  if (packed.dtype[1] !== "8") return values.map(String);
  const view = new DataView(decoded(packed.data).buffer);
  return values.map((_, index) => String(packed.dtype === "i8" ? view.getBigInt64(8 * index, true) : view.getBigUint64(8 * index, true)));
}

/**
 * What an array looks like: an image (height, width, and 1, 3 or 4 channels, which may come first), or nothing.
 * @param {number[]} shape
 * @returns {{height: number, width: number, channels: number, first: boolean} | null}
 */
export function imageShape(shape) {
  if (shape.length === 2 && shape[0] > 1 && shape[1] > 1) {
    return { height: shape[0], width: shape[1], channels: 1, first: false };
  }
  if (shape.length !== 3) return null;
  if ([1, 3, 4].includes(shape[2])) return { height: shape[0], width: shape[1], channels: shape[2], first: false };
  if ([1, 3, 4].includes(shape[0])) return { height: shape[1], width: shape[2], channels: shape[0], first: true };
  return null;
}

/** @param {{packed: Packed}} properties */
function ArrayView({ packed }) {
  const place = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const shape = imageShape(packed.shape);
  const fits = shape && shape.height <= MAX_PIXELS && shape.width <= MAX_PIXELS;
  const label = `${packed.dtype} ${packed.shape.join("×") || "scalar"}`;
  const values = numbersOf(packed);
  useEffect(() => {
    if (place.current && shape && fits) draw(place.current, values, shape, packed.dtype);
  }, [packed]);
  if (fits) {
    return html`<figure><canvas ref=${place} role="img" aria-label="image, ${label}"></canvas><figcaption>${label}</figcaption></figure>`;
  }
  if (values.length > 1 && values.length <= MAX_BARS) return html`<${Bars} values=${values} texts=${textsOf(packed, MAX_BARS)} label=${label} />`;
  const shown = textsOf(packed, 32);
  return html`<span class="mono">${shown.join(", ")}${values.length > 32 ? ", …" : ""} <small>${label}</small></span>`;
}

/** @param {{values: number[], texts: string[], label: string}} properties */
function Bars({ values, texts, label }) {
  const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
  const scale = 40 / (high - low || 1);
  const text = `${label}: ${texts.join(", ")}`;
  return html`
    <figure>
      <svg class="bars" width=${values.length * BAR_PIXELS} viewBox="0 0 ${values.length * 6} 40" role="img" aria-label=${text.slice(0, 400)} preserveAspectRatio="none">
        ${values.map((value, index) => {
          const top = (high - Math.max(value, 0)) * scale;
          return html`<rect x=${index * 6} width="5" y=${top} height=${Math.max(0.5, Math.abs(value) * scale)} />`;
        })}
      </svg>
      <figcaption class="mono">${text.length <= 120 ? text : label}</figcaption>
    </figure>
  `;
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {number[]} values
 * @param {{height: number, width: number, channels: number, first: boolean}} shape
 * @param {string} dtype
 */
function draw(canvas, values, { height, width, channels, first }, dtype) {
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  if (!context) return;
  let [low, high] = [0, 255];
  if (dtype !== "u1") {
    [low, high] = [Infinity, -Infinity];
    for (const value of values) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  const scale = 255 / (high - low || 1);
  const image = context.createImageData(width, height);
  const plane = width * height;
  for (let pixel = 0; pixel < plane; pixel++) {
    for (let channel = 0; channel < 4; channel++) {
      const source = channels === 1 ? 0 : channel;
      const value = first ? values[source * plane + pixel] : values[pixel * channels + source];
      image.data[pixel * 4 + channel] = channel === 3 && channels < 4 ? 255 : (value - low) * scale;
    }
  }
  context.putImageData(image, 0, 0);
}

/** @param {{value: any}} properties */
export function Payload({ value }) {
  if (value === null || value === undefined) return html`<span class="faint">none</span>`;
  if (typeof value !== "object") return html`<span class="mono">${String(value)}</span>`;
  if (Array.isArray(value)) {
    if (value.every((item) => typeof item === "number")) {
      return html`<span class="mono">[${value.join(", ")}]</span>`;
    }
    return html`<ol start="0">${value.map((item) => html`<li><${Payload} value=${item} /></li>`)}</ol>`;
  }
  if ("$array" in value) return html`<${ArrayView} packed=${value.$array} />`;
  if ("$image" in value) return html`<img class="payload" alt="picture" src="data:${value.type};base64,${value.$image}" />`;
  if ("hex" in value && "size" in value) {
    const groups = value.hex.match(/.{1,8}/g)?.join(" ") ?? "";
    const cut = value.size * 2 > value.hex.length;
    return html`<span class="mono">${groups}${cut ? " …" : ""} <small>${bytes(value.size)}</small></span>`;
  }
  if ("type" in value && "value" in value && Object.keys(value).length === 2) {
    const type = value.type.startsWith(WELL_KNOWN) ? null : html`<small class="type">${value.type}</small>`;
    return html`<div>${type}<${Payload} value=${value.value} /></div>`;
  }
  const entries = Object.entries(value);
  if (!entries.length) return html`<span class="faint">empty</span>`;
  return html`<dl class="fields">${entries.map(([name, item]) => html`<dt>${name}</dt><dd><${Payload} value=${item} /></dd>`)}</dl>`;
}
