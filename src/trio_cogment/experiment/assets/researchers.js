// @ts-check
/** The researchers' page: who is where, the groups and the conditions, live; and what can be done about it. */
import { render } from "../../assets/vendor/preact.js";
import { useEffect, useState } from "../../assets/vendor/preact-hooks.js";
import { html } from "../../play/assets/html.js";

const PAUSE_MS = 2000;

/** @param {number} seconds */
function long(seconds) {
  return seconds < 90 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`;
}

/** @param {Record<string, number>} counts */
function counted(counts) {
  return Object.entries(counts).map(([name, count]) => `${name} ${count}`).join(", ") || "none";
}

/** Of the seat of a researcher who plays an agent. */
const WIZARD_STATES = /** @type {Record<string, string>} */ ({
  open: "the trial waits for you",
  held: "somebody plays",
  away: "the page is gone; the trial waits",
  absent: "a bot plays",
  over: "over",
});

/** @typedef {(what: object) => Promise<void>} Act */

/** @param {{state: any, act: Act}} props */
function Summary({ state, act }) {
  return html`<section class="card" aria-labelledby="summary">
    <h2 id="summary">Now</h2>
    <ul>
      <li>Waiting, and here: <b>${state.waiting}</b> (a group has ${state.size})</li>
      <li>On the way: ${counted(state.steps)}</li>
      <li>Groups by condition: ${counted(state.conditions)}${state.full && ", and all places are taken"}</li>
      <li>Ends: ${counted(state.ends)}</li>
    </ul>
    <div class="row">
      <button onClick=${() => act({ what: state.closed ? "open" : "close" })}>
        ${state.closed ? "Open the waiting room" : "Close the waiting room"}</button>
      <a class="button" href="export.zip" download>Export the data</a>
    </div>
  </section>`;
}

/** @param {{people: any[], act: Act}} props */
function Message({ people, act }) {
  const [to, setTo] = useState("");
  const [text, setText] = useState("");
  /** @param {Event} event */
  const submit = async (event) => {
    event.preventDefault();
    await act({ what: "tell", text, ...(to && { id: to }) });
    setText("");
  };
  return html`<form class="card" onSubmit=${submit} aria-labelledby="message">
    <h2 id="message">A message</h2>
    <label class="block">For
      <select value=${to} onChange=${(/** @type {any} */ event) => setTo(event.target.value)}>
        <option value="">everybody</option>
        ${people.filter((each) => each.step !== "out").map((each) => html`<option value=${each.id}>${each.id}</option>`)}
      </select>
    </label>
    <label class="block">Text
      <textarea rows="2" maxlength="2000" required value=${text}
        onInput=${(/** @type {any} */ event) => setText(event.target.value)}></textarea>
    </label>
    <button class="main">Send</button>
  </form>`;
}

/** @param {{groups: any[], act: Act}} props */
function Groups({ groups, act }) {
  return html`<section class="card" aria-labelledby="groups">
    <h2 id="groups">Groups</h2>
    ${groups.length === 0 && html`<p class="faint">None at the moment.</p>`}
    ${groups.length > 0 && html`<div class="scroll" tabindex="0" role="group" aria-labelledby="groups"><table class="people">
      <thead><tr><th>group</th><th>condition</th><th>trial</th><th>members</th><th><span class="hidden-text">end it</span></th></tr></thead>
      <tbody>${groups.map(
        (group) => html`<tr key=${group.number}>
          <td>${group.number}</td><td>${group.condition}</td>
          <td>${group.trial} of ${group.trials}${group.playing ? ", playing" : group.interrupted ? ", goes on when all are back" : ""}</td>
          <td>${group.members.join(", ")}
            ${group.wizards.map(
              (/** @type {any} */ wizard) => html`<p><a href=${`wizard/${group.number}/${encodeURIComponent(wizard.agent)}`}
                target="_blank" rel="noopener">Play ${wizard.agent} of group ${group.number}</a> (${WIZARD_STATES[wizard.state] ?? wizard.state})</p>`,
            )}</td>
          <td><button class="danger" onClick=${() => act({ what: "end group", group: group.number })}>End group ${group.number}</button></td>
        </tr>`,
      )}</tbody></table></div>`}
  </section>`;
}

/** @param {{people: any[], act: Act}} props */
function People({ people, act }) {
  return html`<section class="card" aria-labelledby="people">
    <h2 id="people">People</h2>
    ${people.length === 0 && html`<p class="faint">Nobody has come yet.</p>`}
    ${people.length > 0 && html`<div class="scroll" tabindex="0" role="group" aria-labelledby="people"><table class="people">
      <thead><tr><th>participant</th><th>where</th><th>for</th><th>page open</th><th>group</th><th>condition</th>
        <th><span class="hidden-text">take out</span></th></tr></thead>
      <tbody>${people.map(
        (each) => html`<tr key=${each.id}>
          <td>${each.id}</td><td>${each.end || each.step}${each.page && `: ${each.page}`}</td>
          <td class="number">${each.step === "out" ? "" : long(each.seconds)}</td><td>${each.here ? "yes" : "no"}</td>
          <td>${each.group ?? ""}</td><td>${each.condition}</td>
          <td>${each.step !== "out" &&
          html`<button class="danger" onClick=${() => act({ what: "take out", id: each.id })}>Take out ${each.id}</button>`}</td>
        </tr>`,
      )}</tbody></table></div>`}
  </section>`;
}

function App() {
  const [state, setState] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState("");
  const [live, setLive] = useState(true);
  useEffect(() => {
    const open = () => {
      const address = new URL("live", location.href);
      address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
      const socket = new WebSocket(address);
      socket.binaryType = "arraybuffer";
      socket.onopen = () => setLive(true);
      socket.onmessage = (event) => setState(JSON.parse(new TextDecoder().decode(event.data)));
      socket.onclose = () => {
        setLive(false);
        setTimeout(open, PAUSE_MS);
      };
    };
    open();
  }, []);
  /** @type {Act} */
  const act = async (what) => {
    const reply = await fetch("act", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(what),
    });
    setProblem(reply.ok ? "" : (await reply.json()).message);
  };
  if (!state) return html`<main class="narrow" id="content"><h1>Experiment</h1><p role="status">Connecting …</p></main>`;
  return html`<header class="bar"><h1>${state.title}</h1>
      <span class="row end">
        ${state.closed && html`<span class="tag warn">the waiting room is closed</span>`}
        ${!live && html`<span class="tag bad" role="alert">connection lost, trying again</span>`}
        <a href="../dashboard">Trials</a>
      </span>
    </header>
    <main id="content" tabindex="-1">
      ${problem && html`<p class="card note bad" role="alert">${problem}</p>`}
      <${Summary} state=${state} act=${act} />
      <${Groups} groups=${state.groups} act=${act} />
      <${People} people=${state.people} act=${act} />
      <${Message} people=${state.people} act=${act} />
    </main>`;
}

const root = /** @type {HTMLElement} */ (document.getElementById("app"));
root.textContent = "";
render(html`<${App} />`, root);
