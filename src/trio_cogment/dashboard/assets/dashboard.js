// The dashboard: which part of it is shown, by what follows the `#` of the address.
// @ts-check

import { OUTSIDE, ask, html, render, useAnswer, useEffect, useRef, useState } from "../../assets/client.js";
import { live } from "./live.js";
import { Directory, Log, Model, Models, Server } from "./server.js";
import { Compare, Replay, Stored } from "./stored.js";
import { Trial, Trials } from "./trials.js";

const PARTS = [
  ["trials", "Trials"],
  ["stored", "Stored"],
  ["models", "Models"],
  ["directory", "Directory"],
  ["server", "Server"],
  ["log", "Log"],
];
/** Parts that belong to another one. @type {Record<string, string>} */
const WITHIN = { trial: "trials", replay: "stored", compare: "stored", model: "models" };

function place() {
  const [, name = "", ...rest] = location.hash.split("/");
  let argument = rest.join("/");
  try {
    argument = decodeURIComponent(argument);
  } catch {
    // it stays as it is
  }
  return { name: name || "trials", argument, raw: rest.join("/") };
}

/** @param {{at: {name: string, argument: string, raw: string}}} properties */
function Part({ at }) {
  switch (at.name) {
    case "trials":
      return html`<${Trials} />`;
    case "trial":
      return html`<${Trial} key=${at.argument} id=${at.argument} />`;
    case "stored":
      return html`<${Stored} />`;
    case "replay":
      return html`<${Replay} key=${at.argument} id=${at.argument} />`;
    case "compare":
      return html`<${Compare} key=${at.raw} ids=${at.raw.split(",").map(decodeURIComponent)} />`;
    case "models":
      return html`<${Models} />`;
    case "model":
      return html`<${Model} key=${at.argument} name=${at.argument} />`;
    case "directory":
      return html`<${Directory} />`;
    case "server":
      return html`<${Server} />`;
    case "log":
      return html`<${Log} />`;
    default:
      return html`<p class="note">There is nothing here. <a href="#/trials">Trials</a></p>`;
  }
}

/** @param {string[]} roles */
const ownOnly = (roles) => !roles.includes("admin") && !roles.includes("observer");

function App() {
  const [at, setAt] = useState(place());
  const [state, setState] = useState({ state: "lost", why: "" });
  const { data: me } = useAnswer("/dashboard/api/me");
  const main = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    const moved = () => {
      setAt(place());
      main.current?.focus();
      scrollTo(0, 0);
    };
    addEventListener("hashchange", moved);
    live.onState = (now, why) => setState({ state: now, why });
    live.open();
    return () => removeEventListener("hashchange", moved);
  }, []);
  const current = WITHIN[at.name] ?? at.name;
  async function leave() {
    try {
      await ask("/leave", { method: "POST" });
    } finally {
      location.href = `${OUTSIDE}/`; // a server that does not answer is seen there
    }
  }
  const words = { open: "live", lost: "connecting…", refused: state.why || "refused" };
  const word = /** @type {Record<string, string>} */ (words)[state.state];
  return html`
    <a class="skip" href="#main" onClick=${(/** @type {Event} */ event) => {
      event.preventDefault();
      main.current?.focus();
    }}>To the content</a>
    <header class="bar">
      <h1>Dashboard</h1>
      <nav aria-label="parts">
        <ul>
          ${PARTS.map(([name, title]) => html`<li><a href="#/${name}" aria-current=${current === name ? "page" : undefined}>${title}</a></li>`)}
          ${me && !ownOnly(me.roles) && Object.entries(me.pages).map(([title, path]) => html`<li><a href=${OUTSIDE + path}>${title}</a></li>`)}
        </ul>
      </nav>
      <span class="row end">
        <span class="tag ${state.state === "open" ? "good" : "bad"}" role="status">${word}</span>
        ${state.state === "refused" && html`<button onClick=${() => location.reload()}>Come in again</button>`}
        ${me && html`<small title="who you are, and your roles">${me.name}: ${me.roles.join(", ")}</small>`}
        <button onClick=${leave}>Leave</button>
      </span>
    </header>
    <main id="main" tabindex="-1" ref=${main}>
      ${me && ownOnly(me.roles) && ["trials", "stored"].includes(at.name) &&
      html`<p class="faint">You see the trials that you have started. Those of others are for administrators and observers.</p>`}
      <${Part} at=${at} />
    </main>
  `;
}

const app = document.getElementById("app");
if (app) {
  app.textContent = "";
  render(html`<${App} />`, app);
}
