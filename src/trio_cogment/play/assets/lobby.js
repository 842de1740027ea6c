// @ts-check
/** The lobby: who waits, for how long, and the way out. */
import { useEffect, useRef } from "../../assets/vendor/preact-hooks.js";
import { html } from "./html.js";
import { Countdown } from "./countdown.js";

const SHORTAGES = /** @type {Record<string, string>} */ ({
  bots: "bots take the other seats",
  fewer: "the game begins with those who are there",
  "give up": "there is no game",
});

/** What a page says when there is nothing to wait for any more: a title and a text. */
const ENDS = /** @type {Record<string, [string, string]>} */ ({
  "timed out": ["Nobody came in time", "There were not enough people for a game. You will not be called any more."],
  left: ["You have left", "Your place was given up."],
  failed: ["The game could not start", "This is not your fault. Please tell those who gave you the link."],
  played: ["The game is over", "Thank you for playing."],
  "turned away": ["The lobby is full", "Please come back later."],
});

/** @param {{state: any}} props */
function Presence({ state }) {
  const missing = Math.max(state.seats - state.ready - state.bots, 0);
  const filled = Math.min(state.ready + state.bots, state.seats);
  return html`<div class="card">
    <h2>Who is here</h2>
    <p class="seats" role="img" aria-label=${`${filled} of ${state.seats} seats are taken`}>
      ${Array.from({ length: state.seats }, (_, k) => html`<span class=${k < filled ? "taken" : "free"}></span>`)}
    </p>
    <ul class="plain" aria-live="polite">
      <li><b>${state.ready}</b> ready${state.bots > 0 && html`, and <b>${state.bots}</b> bots`}</li>
      <li><b>${state.reading}</b> still reading</li>
      ${state.away > 0 && html`<li><b>${state.away}</b> away</li>`}
      <li>${missing === 0 ? "All seats are taken." : `${missing} more ${missing === 1 ? "is" : "are"} needed.`}</li>
    </ul>
    ${state.seconds !== null &&
    html`<p>Time left: <${Countdown} seconds=${state.seconds} since=${state.since} />.
      After that, ${SHORTAGES[state.shortage]}.</p>`}
  </div>`;
}

/** Ends the address of a lobby to which somebody comes back whose seat is not there any more. */
export const BACK = "#back";

/**
 * @param {{welcome: any, state: any, say: (message: object) => void, again: () => void}} props
 */
export function Lobby({ welcome, state, say, again }) {
  // Who was ready at a server that has been started again need not say so once more.
  const wasReady = useRef(location.hash === BACK);
  useEffect(() => {
    // Once is enough: after a reload, or when they have left, they say so themselves.
    if (state.state !== "reading" && location.hash === BACK) history.replaceState(null, "", location.pathname);
  }, [state.state]);
  if (["ready", "seated", "played"].includes(state.state)) wasReady.current = true;
  if (state.state === "left") wasReady.current = false;
  const next = welcome.again && (state.state === "played" || (state.state === "reading" && wasReady.current));
  useEffect(() => {
    if (next) say({ type: "ready" });
  }, [next]);
  const end = !next && ENDS[state.state];
  if (end) {
    return html`<main class="narrow" id="content" tabindex="-1"><div class="card">
      <h2>${end[0]}</h2>
      <p>${end[1]}</p>
      ${state.state !== "turned away" &&
      html`<button class="main" onClick=${again}>${state.state === "played" ? "Play again" : "Come again"}</button>`}
    </div></main>`;
  }
  const reading = state.state === "reading";
  return html`<main class="narrow" id="content" tabindex="-1">
    <div class="card">
      ${welcome.text && html`<p class="pre">${welcome.text}</p>`}
      ${welcome.recorded && html`<p>This game is recorded: what you are shown, and what you do.</p>`}
      ${state.state === "seated"
        ? html`<p role="status">The game begins …</p>`
        : reading
          ? html`<button class="main" onClick=${() => say({ type: "ready" })}>I am ready</button>`
          : html`<p role="status">You are ready. The game begins when everybody is.</p>`}
      ${" "}
      <button onClick=${() => say({ type: "resign" })}>Leave</button>
    </div>
    ${state.seats > 1 && html`<${Presence} state=${state} />`}
  </main>`;
}
