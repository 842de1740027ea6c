// @ts-check
/** Observations on the page: each part by its kind. All of it is set as text; nothing is markup. */
import { useEffect, useRef, useState } from "../../assets/vendor/preact-hooks.js";
import { html } from "./html.js";

/**
 * @typedef {{name: string, kind: string, [field: string]: any}} Part  as `play/views.py` has it
 */

/** Tables with more columns are drawn without numbers. */
const MOST_COLUMNS = 24;

/** @param {number | string | boolean | null} value */
function shown(value) {
  if (typeof value !== "number" || Number.isInteger(value)) return String(value);
  return Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3 ? value.toExponential(3) : value.toFixed(3);
}

/** Longer JSON is broken into lines. */
const MOST_ON_A_LINE = 60;

/**
 * Return JSON as people read it: what fits is on one line.
 * @param {any} value
 * @param {string} inset  what the lines begin with
 * @returns {string}
 */
function laidOut(value, inset = "") {
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const [before, after] = Array.isArray(value) ? "[]" : "{}";
  const inner = `${inset} `;
  const parts = Array.isArray(value)
    ? value.map((each) => laidOut(each, inner))
    : Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${laidOut(each, inner)}`);
  const line = `${before}${parts.join(", ")}${after}`;
  if (inset.length + line.length <= MOST_ON_A_LINE && !line.includes("\n")) return line;
  return `${before}\n${parts.map((part) => inner + part).join(",\n")}\n${inset}${after}`;
}

/** @param {{blob: Blob, name: string}} props */
function Picture({ blob, name }) {
  const [address, setAddress] = useState("");
  useEffect(() => {
    const made = URL.createObjectURL(blob);
    setAddress(made);
    return () => URL.revokeObjectURL(made);
  }, [blob]);
  return address && html`<img class="picture" src=${address} alt=${name || "what the environment shows"} />`;
}

/** @param {{rows: number[][], name: string}} props */
function Grid({ rows, name }) {
  if (rows[0].length > MOST_COLUMNS) return html`<${Canvas} rows=${rows} name=${name} />`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${name || "grid"}>
    <table class="cells"><tbody>
      ${rows.map((row) => html`<tr>${row.map((cell) => html`<td class="number">${shown(cell)}</td>`)}</tr>`)}
    </tbody></table>
  </div>`;
}

/** @param {{rows: number[][], name: string}} props */
function Canvas({ rows, name }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context) return;
    const flat = rows.flat();
    const low = Math.min(...flat);
    const spread = Math.max(...flat) - low || 1;
    const image = context.createImageData(rows[0].length, rows.length);
    flat.forEach((value, index) => {
      image.data.fill(Math.round((255 * (value - low)) / spread), 4 * index, 4 * index + 3);
      image.data[4 * index + 3] = 255;
    });
    context.putImageData(image, 0, 0);
  }, [rows]);
  const label = `${name || "grid"}: ${rows.length} rows, ${rows[0].length} columns`;
  return html`<canvas ref=${canvas} class="picture" width=${rows[0].length} height=${rows.length} role="img"
    aria-label=${label}></canvas>`;
}

/** @param {{part: Part, blobs: Blob[]}} props */
function Content({ part, blobs }) {
  switch (part.kind) {
    case "image": {
      const blob = blobs[part.blob];
      return blob?.type.startsWith("image/")
        ? html`<${Picture} blob=${blob} name=${part.name} />`
        : html`<p>A picture that is too large to be shown.</p>`;
    }
    case "grid":
      return html`<${Grid} rows=${part.rows} name=${part.name} />`;
    case "numbers":
      return html`<p class="mono">${part.values.map(shown).join("   ")}</p>`;
    case "array":
      return html`<p class="mono">${part.dtype} ${part.shape.join(" × ")}, ${shown(part.low)} to ${shown(part.high)}</p>`;
    case "value":
      return html`<p class="mono">${String(part.value)}</p>`; // there is room for all digits
    case "json":
      return html`<pre tabindex="0" role="region" aria-label=${part.name || "value"}>${laidOut(part.value)}</pre>`;
    default:
      return html`<pre tabindex="0" role="region" aria-label=${part.name || "text"}>${part.text}</pre>`;
  }
}

/** @param {{parts: Part[], blobs: Blob[]}} props */
export function Parts({ parts, blobs }) {
  return parts.map(
    (part, index) => html`<section class="part" key=${`${index} ${part.name} ${part.kind}`}>
      ${part.name && part.kind !== "image" && html`<h3>${part.name.replace(/^observation\./, "")}</h3>`}
      <${Content} part=${part} blobs=${blobs} />
    </section>`,
  );
}

/** A page of one's own is as high as it says, within bounds. */
const MOST_PIXELS = 4000;

/**
 * The project's own page that shows observations, in a frame that can reach nothing; `own_page.js` is the other end.
 * @param {{
 *   welcome: any, state: any, notices: any[], members: any[], act: (action: any) => void,
 *   say: (message: object) => void, base: string,
 * }} props
 */
export function Renderer({ welcome, state, notices, members, act, say, base }) {
  const frame = useRef(/** @type {HTMLIFrameElement | null} */ (null));
  const [ready, setReady] = useState("");
  const [height, setHeight] = useState(/** @type {number | null} */ (null));
  /** @param {object} message */
  const tell = (message) => {
    // Its origin is none, so it cannot be named; what is sent is what the person sees anyway.
    if (ready) frame.current?.contentWindow?.postMessage(message, "*");
  };
  useEffect(() => {
    /** @param {MessageEvent} event */
    const listen = (event) => {
      if (event.source !== frame.current?.contentWindow) return;
      const { type, module, action, to, text, value, height: pixels } = event.data ?? {};
      if (type === "ready") setReady(module ? "module" : "page");
      if (type === "act") act(action);
      if (type === "message") say({ type, to, text });
      if (type === "reward") say({ type, to, value });
      if (type === "height" && pixels > 0) setHeight(Math.min(Math.ceil(pixels), MOST_PIXELS));
    };
    addEventListener("message", listen);
    return () => removeEventListener("message", listen);
  }, [act, say]);
  // A page without the module takes each message for an observation.
  /** @param {object} message */
  const tellModule = (message) => ready === "module" && tell(message);
  useEffect(() => void tellModule({ type: "members", members }), [ready, JSON.stringify(members)]);
  useEffect(() => {
    const { tick, asked, parts, form, over, blobList: blobs } = state;
    const seconds = state.seconds === null ? null : state.seconds - (performance.now() - state.since) / 1000;
    const { actor, receivers, total } = welcome;
    tell({ type: "observation", tick, asked, parts, form, blobs, seconds, over, actor, receivers, total });
  }, [ready, state]);
  useEffect(() => void tellModule({ type: "notices", notices }), [ready, notices]);
  return html`<iframe ref=${frame} class="renderer" src=${`${base}renderer`} sandbox="allow-scripts allow-forms" title="The game"
    style=${height === null ? {} : { height: `${height}px` }}></iframe>`;
}
