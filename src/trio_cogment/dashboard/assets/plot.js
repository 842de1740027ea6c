// Curves, by uPlot: drawn again when their data or the page's width change. For those who do not see them there is a
// table of the last values.
// @ts-check

import uPlot from "../../assets/vendor/uplot.js";
import { html, useEffect, useRef } from "../../assets/client.js";

const COLOURS = ["#0b62c4", "#d1495b", "#2e8b57", "#b8860b", "#7b4fb5", "#008b8b", "#c2568f", "#6b7280"];
const DARK_COLOURS = ["#7cb7ff", "#ff8fa0", "#7ddba0", "#f0c060", "#c3a5f5", "#6fd6d6", "#f5a3cb", "#b8c2cf"];
const HEIGHT = 220;

/** @typedef {import("./rows.js").Curve} Curve */

/**
 * All curves over the ticks of all of them: uPlot has one axis.
 * @param {Curve[]} curves
 * @returns {(number | null)[][]}
 */
export function aligned(curves) {
  const ticks = [...new Set(curves.flatMap((curve) => curve.ticks))].sort((a, b) => a - b);
  return [
    ticks,
    ...curves.map((curve) => {
      const values = new Map(curve.ticks.map((tick, index) => [tick, curve.values[index]]));
      return ticks.map((tick) => values.get(tick) ?? null);
    }),
  ];
}

/**
 * @param {{title: string, curves: Record<string, Curve>, at?: number}} properties
 */
export function Plot({ title, curves, at }) {
  const place = useRef(/** @type {HTMLDivElement | null} */ (null));
  const names = Object.keys(curves).sort();
  const shape = names.join("\n");
  const plot = useRef(/** @type {any} */ (null));
  const marked = useRef(at);
  marked.current = at;

  useEffect(() => {
    const element = place.current;
    if (!element || !names.length) return undefined;
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const style = getComputedStyle(document.documentElement);
    const [text, line] = ["--faint", "--line"].map((name) => style.getPropertyValue(name).trim());
    const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    const made = new uPlot(
      {
        width: element.clientWidth || 300,
        height: HEIGHT,
        scales: { x: { time: false } },
        axes: [axis, axis],
        cursor: { drag: { x: true, y: false } },
        series: [
          { label: "tick" },
          ...names.map((name, index) => ({
            label: name,
            stroke: (dark ? DARK_COLOURS : COLOURS)[index % COLOURS.length],
            width: 1.5,
            dash: index >= COLOURS.length ? [4, 3] : undefined,
            spanGaps: true,
          })),
        ],
        hooks: {
          draw: [
            (/** @type {any} */ drawn) => {
              if (marked.current === undefined) return;
              const x = drawn.valToPos(marked.current, "x", true);
              const { ctx, bbox } = drawn;
              ctx.save();
              ctx.strokeStyle = text;
              ctx.setLineDash([4, 4]);
              ctx.beginPath();
              ctx.moveTo(x, bbox.top);
              ctx.lineTo(x, bbox.top + bbox.height);
              ctx.stroke();
              ctx.restore();
            },
          ],
        },
      },
      /** @type {any} */ (aligned(names.map((name) => curves[name]))),
      element,
    );
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth || 300, height: HEIGHT }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape]);

  useEffect(() => {
    plot.current?.setData(aligned(names.map((name) => curves[name])));
  }, [curves, shape]);
  useEffect(() => plot.current?.redraw(false), [at]);

  if (!names.length) return null;
  return html`
    <figure class="plot" aria-label=${title}>
      <figcaption>${title}</figcaption>
      <div ref=${place} aria-hidden="true"></div>
      <table class="hidden-text">
        <caption>${title}: the last values</caption>
        <tbody>
          ${names.map(
            (name) => html`<tr><th scope="row">${name}</th><td>${curves[name].values.at(-1)}</td></tr>`,
          )}
        </tbody>
      </table>
    </figure>
  `;
}
