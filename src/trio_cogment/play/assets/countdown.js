// @ts-check
/** Seconds that run down. */
import { useEffect, useState } from "../../assets/vendor/preact-hooks.js";
import { html } from "./html.js";

/** @param {{seconds: number, since: number}} props  what was left, and when: milliseconds of `performance.now` */
export function Countdown({ seconds, since }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((count) => count + 1), 200);
    return () => clearInterval(timer);
  }, []);
  const left = Math.max(seconds - (performance.now() - since) / 1000, 0);
  const text = left >= 90 ? `${Math.ceil(left / 60)} min` : left >= 10 ? `${Math.ceil(left)} s` : `${left.toFixed(1)} s`;
  return html`<span class="mono" role="timer">${text}</span>`;
}
