// Trials that are known to the orchestrator: the list, one of them, and starting one.
// @ts-check

import { Confirm, Problem, ask, askJson, counted, duration, html, useAnswer, useState } from "../../assets/client.js";
import { useView } from "./live.js";
import { Payload } from "./payload.js";
import { Plot } from "./plot.js";
import { applied, continued } from "./rows.js";

/** @typedef {import("./rows.js").Row} Row */

const API = "/dashboard/api";
const STATES = { RUNNING: "good", PENDING: "warn", INITIALIZING: "warn", TERMINATING: "warn", ENDED: "faint" };
const MAX_MESSAGES = 200;

/** @param {{state: string}} properties */
export function State({ state }) {
  const kind = /** @type {Record<string, string>} */ (STATES)[state] ?? "";
  return html`<span class="tag ${kind}">${state.toLowerCase()}</span>`;
}

/** @param {string} id */
export const link = (id) => `#/trial/${encodeURIComponent(id)}`;

export function Trials() {
  const [search, setSearch] = useState("");
  const [rows, setRows] = useState(/** @type {Map<string, Row>} */ (new Map()));
  const [counts, setCounts] = useState(/** @type {Record<string, number>} */ ({}));
  const [starting, setStarting] = useState(false);
  useView({ view: "trials", search }, (news, first) => {
    setRows((/** @type {Map<string, Row>} */ old) => applied(first ? new Map() : old, news));
    if (news.counts || first) setCounts(news.counts ?? {});
  });
  const known = Object.values(counts).reduce((sum, count) => sum + count, 0);
  return html`
    <section aria-labelledby="trials-title">
      <div class="row">
        <h2 id="trials-title">Trials</h2>
        <label>Search <input type="search" value=${search} onInput=${(/** @type {any} */ event) => setSearch(event.target.value)} /></label>
        <button class="main end" onClick=${() => setStarting(true)}>Start a trial…</button>
      </div>
      <p class="row" role="status">
        ${Object.entries(counts).map(([state, count]) => html`<span><${State} state=${state} /> ${count}</span>`)}
        ${known > rows.size && html`<small>${rows.size} of them are shown</small>`}
      </p>
      ${starting && html`<${Start} onDone=${() => setStarting(false)} />`}
      <div class="card scroll" tabindex="0" role="region" aria-label="list of trials">
        ${rows.size ? html`<${List} rows=${rows} />` : html`<p class="faint">There are no trials${search && " like that"}.</p>`}
      </div>
    </section>
  `;
}

/** @param {{rows: Map<string, Row>}} properties */
function List({ rows }) {
  return html`
    <table class="stack">
      <thead>
        <tr>
          <th scope="col">Trial</th><th scope="col">State</th><th scope="col" class="number">Tick</th>
          <th scope="col" class="number">Ticks/s</th><th scope="col">Waits for</th><th scope="col">Environment</th>
          <th scope="col" class="number">Actors</th><th scope="col">User</th><th scope="col" class="number">Time</th>
          <th scope="col">Queues</th>
        </tr>
      </thead>
      <tbody>
        ${[...rows.values()].map(
          (row) => html`
            <tr key=${row.id}>
              <th scope="row"><a href=${link(row.id)}>${row.id}</a></th>
              <td data-label="State"><${State} state=${row.state} /></td>
              <td data-label="Tick" class="number">${row.tick}</td>
              <td data-label="Ticks/s" class="number">${row.rate ?? ""}</td>
              <td data-label="Waits for">${row.slow === undefined ? "" : `${row.slow} (${Math.round(row.share * 100)} %)`}</td>
              <td data-label="Environment">${row.environment}</td>
              <td data-label="Actors" class="number">${row.actors}</td>
              <td data-label="User">${row.user}</td>
              <td data-label="Time" class="number">${duration(row.seconds)}</td>
              <td data-label="Queues"><${Queues} row=${row} /></td>
            </tr>
          `,
        )}
      </tbody>
    </table>
  `;
}

/** @param {number} count */
const lostText = (count) => `${counted(count, "sample")} ${count === 1 ? "was" : "were"} lost`;

/** @param {{row: Row}} properties */
function Queues({ row }) {
  const parts = [
    row.messages ? counted(row.messages, "message") : "",
    row.samples ? counted(row.samples, "sample") : "",
  ].filter(Boolean);
  return html`
    ${parts.length > 0 && html`<span class="warn">${parts.join(", ")}</span> `}
    ${row.trouble && html`<span class="bad" title=${row.trouble}>the data log takes no samples</span> `}
    ${row.lost > 0 && html`<span class="bad">${lostText(row.lost)}</span>`}
  `;
}

/** @param {{onDone: () => void}} properties */
function Start({ onDone }) {
  const { data, error } = useAnswer(`${API}/defaults`);
  const [text, setText] = useState(/** @type {string | null} */ (null));
  const [problem, setProblem] = useState("");
  const shown = text ?? (data ? JSON.stringify(data.params ?? {}, null, 2) : "");
  /** @param {any} event */
  async function start(event) {
    event.preventDefault();
    const form = new FormData(event.target);
    const asked = { trial_id: form.get("trial_id"), user_id: form.get("user_id") };
    try {
      if (text !== null) JSON.parse(text); // says what is wrong; what is sent is the text, in which no number is rounded
      const body = JSON.stringify(asked).replace(/}$/, () => (text === null ? "}" : `,"params":${text}}`));
      const { trial_id: id } = await askJson(`${API}/trials`, { method: "POST", json: body });
      onDone();
      location.hash = link(id);
    } catch (failure) {
      setProblem(String(failure instanceof Error ? failure.message : failure));
    }
  }
  return html`
    <form class="card" onSubmit=${start} aria-labelledby="start-title">
      <h3 id="start-title">Start a trial</h3>
      <div class="grid">
        <label class="block">Id (empty: a new one) <input name="trial_id" autocomplete="off" maxlength="512" /></label>
        <label class="block">User <input name="user_id" autocomplete="off" value="dashboard" maxlength="512" /></label>
      </div>
      <label class="block">
        Parameters (JSON)${text === null ? ": the default ones, and the pre-trial hooks" : ": as they are here, without hooks"}
        <textarea name="params" rows="12" spellcheck="false" value=${shown} onInput=${(/** @type {any} */ event) => setText(event.target.value)}></textarea>
      </label>
      <${Problem} text=${problem || error} />
      <div class="row">
        <button class="main">Start</button>
        <button type="button" onClick=${onDone}>Cancel</button>
      </div>
    </form>
  `;
}

/** @param {{id: string}} properties */
export function Trial({ id }) {
  const [rows, setRows] = useState(/** @type {Map<string, Row>} */ (new Map()));
  const [curves, setCurves] = useState(/** @type {Record<string, import("./rows.js").Curve>} */ ({}));
  const [sample, setSample] = useState(/** @type {any} */ (null));
  const [messages, setMessages] = useState(/** @type {any[]} */ ([]));
  const [note, setNote] = useState("");
  const [missing, setMissing] = useState("");
  useView({ view: "trial", id }, (news, first) => {
    setRows((/** @type {Map<string, Row>} */ old) => applied(first ? new Map() : old, news));
    if (news.curves || first) setCurves((/** @type {any} */ old) => continued(first ? {} : old, news.curves ?? {}));
    if (news.sample || first) setSample(news.sample ?? null);
    if (news.messages || first) {
      setMessages((/** @type {any[]} */ old) => [...(first ? [] : old), ...(news.messages ?? [])].slice(-MAX_MESSAGES));
    }
    if (news.note !== undefined || first) setNote(news.note ?? "");
    if (news.missing || first) setMissing(news.missing ?? "");
  });
  const trial = rows.get("trial");
  if (missing && !trial) {
    return html`<section><h2>${id}</h2><p class="note">${missing}. It may be among the <a href="#/replay/${encodeURIComponent(id)}">stored trials</a>.</p></section>`;
  }
  if (!trial) return html`<p role="status">Looking…</p>`;
  const participants = [...rows.entries()].filter(([key]) => key !== "trial").map(([, row]) => row);
  return html`
    <section aria-labelledby="trial-title">
      <div class="row">
        <h2 id="trial-title">${trial.id}</h2>
        <${State} state=${trial.state} />
        <${Stop} id=${trial.id} state=${trial.state} />
      </div>
      <dl class="facts">
        <div><dt>Tick</dt><dd>${trial.tick}</dd></div>
        <div><dt>Ticks/s</dt><dd>${trial.rate ?? "–"}</dd></div>
        <div><dt>Time</dt><dd>${duration(trial.seconds)}</dd></div>
        <div><dt>User</dt><dd>${trial.user || "–"}</dd></div>
        <div><dt>Queues</dt><dd>${trial.messages || trial.samples || trial.lost ? html`<${Queues} row=${trial} />` : "empty"}</dd></div>
      </dl>
      ${trial.held && html`<p class="note bad" role="status">The trial waits for its data log: ${trial.trouble || "it is slow"}</p>`}
      ${trial.trouble && !trial.held && html`<p class="note bad" role="status">The data log takes no samples: ${trial.trouble}</p>`}
      ${trial.end && html`<${End} end=${trial.end} />`}
      <${Participants} rows=${participants} />
      ${note && html`<p class="note" role="status">${note}</p>`}
      <${Curves} curves=${curves} />
      ${sample && html`<${Sample} sample=${sample} title="Last sample" />`}
      <${Messages} messages=${messages} />
      <${Params} id=${trial.id} />
    </section>
  `;
}

/** @param {{end: any}} properties */
function End({ end }) {
  return html`
    <div class="note ${end.reason ? "bad" : ""}">
      Ended: ${end.cause.toLowerCase().replaceAll("_", " ")}${end.participant && ` (${end.participant})`}${end.reason && `: ${end.reason}`}
      ${end.losses?.length > 0 &&
      html`<ul>${end.losses.map((/** @type {any} */ one) => html`<li>${one.participant}: ${one.reason}</li>`)}</ul>`}
      ${end.lost > 0 && html`<p class="bad">${lostText(end.lost)}: the data log did not take them.</p>`}
    </div>
  `;
}

/** @param {{rows: Row[]}} properties */
function Participants({ rows }) {
  const kinds = /** @type {Record<string, string>} */ ({ there: "good", gone: "bad", "does not answer": "bad" });
  return html`
    <div class="card scroll" tabindex="0" role="region" aria-label="participants">
      <table class="stack">
        <caption>Participants; the share of the time for which the trial waited for each</caption>
        <thead>
          <tr>
            <th scope="col">Name</th><th scope="col">Class</th><th scope="col">Implementation</th><th scope="col">Health</th>
            <th scope="col">Waited for</th><th scope="col" class="number">Silent</th>
            <th scope="col" class="number">Queue</th><th scope="col">Endpoint</th>
          </tr>
        </thead>
        <tbody>
          ${rows.map(
            (row) => html`
              <tr>
                <th scope="row">${row.name}</th>
                <td data-label="Class">${row.class || "environment"}</td>
                <td data-label="Implementation">${row.implementation}</td>
                <td data-label="Health"><span class="tag ${kinds[row.health] ?? "warn"}">${row.health}</span></td>
                <td data-label="Waited for">
                  <span>
                    <meter min="0" max="1" value=${row.share} aria-label="share of the time that the trial waited for ${row.name}"></meter>
                    ${" "}${Math.round(row.share * 100)} %
                  </span>
                </td>
                <td data-label="Silent" class="number">${row.silent ? `${row.silent} s` : ""}</td>
                <td data-label="Queue" class="number">${row.queued || ""}</td>
                <td data-label="Endpoint" class="mono">${row.endpoint}</td>
              </tr>
            `,
          )}
        </tbody>
      </table>
    </div>
  `;
}

/** @param {{id: string, state: string}} properties */
function Stop({ id, state }) {
  const [asked, setAsked] = useState(/** @type {"" | "soft" | "hard"} */ (""));
  const [problem, setProblem] = useState("");
  if (state === "ENDED") return null;
  const texts = {
    soft: "The environment and the actors are told, and finish in good order.",
    hard: "Everybody is cut off now. Actions and observations that are on their way are lost.",
  };
  /** @param {boolean} yes */
  async function done(yes) {
    setAsked("");
    if (!yes) return;
    const body = { hard: asked === "hard" };
    try {
      await ask(`${API}/trials/${encodeURIComponent(id)}/stop`, { method: "POST", body });
      setProblem("");
    } catch (failure) {
      setProblem(String(failure instanceof Error ? failure.message : failure));
    }
  }
  return html`
    <span class="row end">
      <button onClick=${() => setAsked("soft")}>End…</button>
      <button class="danger" onClick=${() => setAsked("hard")}>End at once…</button>
    </span>
    <${Problem} text=${problem} />
    ${asked &&
    html`<${Confirm}
      title=${asked === "hard" ? `End ${id} at once?` : `End ${id}?`}
      text=${texts[asked]}
      action=${asked === "hard" ? "End at once" : "End"}
      onDone=${done}
    />`}
  `;
}

/** @param {{curves: Record<string, any>, at?: number}} properties */
export function Curves({ curves, at }) {
  /** @type {Record<string, any>} */
  const rewards = {};
  /** @type {Record<string, any>} */
  const actions = {};
  for (const [name, curve] of Object.entries(curves)) {
    const [kind, ...rest] = name.split("|");
    (kind === "reward" ? rewards : actions)[rest.join(" ")] = curve;
  }
  if (!Object.keys(curves).length) return null;
  return html`
    <div class="grid">
      ${Object.keys(rewards).length > 0 && html`<div class="card"><${Plot} title="Rewards" curves=${rewards} at=${at} /></div>`}
      ${Object.keys(actions).length > 0 && html`<div class="card"><${Plot} title="Actions" curves=${actions} at=${at} /></div>`}
    </div>
  `;
}

const STAND_INS = /** @type {Record<string, string>} */ ({ bot: "by a bot", default: "the default one" });

/** @param {{sample: any, title: string}} properties */
export function Sample({ sample, title }) {
  return html`
    <section aria-label=${title}>
      <h3>${title}: tick ${sample.tick}</h3>
      ${sample.events?.map((/** @type {string} */ text) => html`<p class="note">${text}</p>`)}
      <div class="grid">
        ${Object.entries(sample.actors).map(
          ([name, /** @type {any} */ actor]) => html`
            <div class="card">
              <h4>${name}</h4>
              ${actor.reward !== undefined && html`<p>Reward <strong>${actor.reward}</strong></p>`}
              <h5>Observation</h5>
              <${Payload} value=${actor.observation} />
              <h5>Action${actor.standIn && ` (${STAND_INS[actor.standIn] ?? actor.standIn})`}</h5>
              <${Payload} value=${actor.action} />
            </div>
          `,
        )}
      </div>
    </section>
  `;
}

/** @param {{messages: any[]}} properties */
export function Messages({ messages }) {
  if (!messages.length) return null;
  return html`
    <div class="card scroll messages" tabindex="0" role="region" aria-label="messages">
      <table class="stack">
        <caption>Messages, the newest first</caption>
        <thead><tr><th scope="col" class="number">Tick</th><th scope="col">From</th><th scope="col">To</th><th scope="col">Message</th></tr></thead>
        <tbody>
          ${messages.toReversed().map(
            (one) => html`<tr>
              <td data-label="Tick" class="number">${one.tick}</td><td data-label="From">${one.from || "environment"}</td><td data-label="To">${one.to || "environment"}</td>
              <td data-label="Message"><${Payload} value=${one.payload} /></td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
  `;
}

/** @param {{id: string}} properties */
function Params({ id }) {
  const [open, setOpen] = useState(false);
  return html`
    <details class="card" onToggle=${(/** @type {any} */ event) => setOpen(event.target.open)}>
      <summary>Parameters</summary>
      ${open && html`<${ParamsOf} path="${API}/trials/${encodeURIComponent(id)}/params" />`}
    </details>
  `;
}

/** @param {{path: string}} properties */
export function ParamsOf({ path }) {
  const { data, error } = useAnswer(path);
  if (error) return html`<${Problem} text=${error} />`;
  return html`<pre>${data ? JSON.stringify(data.params, null, 2) : "…"}</pre>`;
}
