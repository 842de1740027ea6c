// @ts-check
/** The page in which people take part in trials: a lobby, or a seat, by the link that it was opened with. */
import { render } from "../../assets/vendor/preact.js";
import { useEffect, useMemo, useReducer, useState } from "../../assets/vendor/preact-hooks.js";
import { Countdown } from "./countdown.js";
import { html } from "./html.js";
import { BACK, Lobby } from "./lobby.js";
import { Seat } from "./seat.js";
import { NOTHING, reduce } from "./seen.js";
import { session } from "./storage.js";
import { Wire } from "./wire.js";

/** What a proxy has before the paths of the server. */
const BEFORE = location.pathname.replace(/(\/~[^/]*)?\/play\/$/, "");
const TICKET = `trio-cogment ticket ${location.pathname}`;

/** @typedef {import("./seen.js").Seen} Seen */

/** @param {Seen["state"]} state */
function follow(state) {
  if (state.type === "lobby" && state.link) {
    session.setItem("trio-cogment lobby", location.pathname);
    location.replace(BEFORE + state.link);
  }
}

/** @param {{wire: Wire}} props */
function Latency({ wire }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((count) => count + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  return wire.latency !== null && html`<span class="tag" title="How long an answer of the server takes">
    ${wire.latency < 10 ? wire.latency.toFixed(1) : Math.round(wire.latency)} ms</span>`;
}

/** @param {{seen: Seen, wire: Wire}} props */
function Bar({ seen, wire }) {
  const { welcome, state, place, connection, dismissed } = seen;
  useEffect(() => {
    if (!welcome) return;
    const turn = place === "seat" && state.asked !== null ? "● " : "";
    document.title = `${turn}${welcome.title}`;
  }, [welcome, state]);
  return html`<header class="bar">
    <h1>${welcome?.title ?? "Play"}</h1>
    ${place === "seat" && html`<span>You are <b>${welcome.actor}</b></span>`}
    <span class="row end">
      ${place === "seat" && state.asked !== null && state.seconds !== null &&
      html`<span class="tag warn">time left <${Countdown} seconds=${state.seconds} since=${state.since} /></span>`}
      ${place === "seat" && welcome.tick_hz > 0 &&
      html`<span class="tag" title="The game does not wait: who has not acted in time takes part by default">
        ${Number(welcome.tick_hz.toPrecision(3))} ticks a second</span>`}
      ${place === "seat" && state.tick !== null && html`<span class="tag">tick ${state.tick}</span>`}
      ${connection === "open" && !dismissed && html`<${Latency} wire=${wire} />`}
      ${connection === "lost" && !dismissed && html`<span class="tag bad" role="alert">${seen.reason || "connection lost, trying again"}</span>`}
    </span>
  </header>`;
}

function App() {
  const [seen, dispatch] = useReducer(reduce, NOTHING);
  const wire = useMemo(() => {
    const made = new Wire(
      (message) => {
        if (message.welcome?.ticket) session.setItem(TICKET, message.welcome.ticket);
        if (message.type === "lobby") follow(message);
        dispatch(message);
      },
      (state, reason) => dispatch({ type: "connection", state, reason }),
      // A lobby is told who it was before; a seat's link says who it is.
      () => ({ type: "hello", ticket: session.getItem(TICKET) ?? "", automated: location.hash === "#automated" }),
    );
    return made;
  }, []);
  const say = useMemo(() => (/** @type {object} */ message) => wire.say(message), [wire]);
  const again = () => {
    if (seen.state.state === "played") {
      say({ type: "ready" });
    } else {
      session.removeItem(TICKET);
      location.reload();
    }
  };
  // The program that had the seat may have been started again: then its trial goes on by another one, to which this leads.
  const lobby = session.getItem("trio-cogment lobby");
  const goesBack = seen.connection === "refused" && seen.welcome?.again && seen.place === "seat" && !seen.dismissed && lobby;
  useEffect(() => {
    if (goesBack) location.replace(lobby + BACK);
  }, [goesBack]);
  let content;
  if (goesBack) {
    content = html`<main class="narrow" id="content"><p role="status">The game will be back in a moment.</p></main>`;
  } else if (seen.connection === "refused") {
    const text = "This link does not count, or not any more. Please ask for another one.";
    content = html`<main class="narrow" id="content"><div class="card note bad" role="alert">
      <h2>Not possible</h2><p>${text}</p><p class="faint">${seen.reason}</p></div></main>`;
  } else if (seen.place === "lobby" && seen.dismissed) {
    content = html`<main class="narrow" id="content"><div class="card note" role="status">
      <h2>You wait in another window</h2></div></main>`;
  } else if (seen.place === "lobby") {
    content = html`<${Lobby} welcome=${seen.welcome} state=${seen.state} say=${say} again=${again} />`;
  } else if (seen.place === "seat") {
    content = html`<main id="content" tabindex="-1"><${Seat} ...${seen} say=${say} /></main>`;
  } else if (seen.dismissed) {
    content = html`<main class="narrow" id="content"><div class="card note" role="status">
      <h2>${seen.dismissed.reason === "left" ? "The seat was given up" : "The game is over"}</h2>
      ${seen.dismissed.failure && html`<p>${seen.dismissed.failure}</p>`}</div></main>`;
  } else {
    content = html`<main class="narrow" id="content"><p role="status">Connecting …</p></main>`;
  }
  return html`<${Bar} seen=${seen} wire=${wire} />${content}`;
}

const root = /** @type {HTMLElement} */ (document.getElementById("app"));
root.textContent = "";
render(html`<${App} />`, root);
