// Models, the directory, and the server itself.
// @ts-check

import { Problem, ROOT, bytes, counted, duration, html, useAnswer, useState } from "../../assets/client.js";
import { useView } from "./live.js";
import { applied } from "./rows.js";

const API = "/dashboard/api";
const MAX_RECORDS = 1000;
const LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"];
/** Keys of a version's data that name what it came of. */
const PARENTS = ["parent", "parent_version", "based_on", "source_version", "initial_version"];

/** @param {Record<string, string>} data */
const pairs = (data) => Object.entries(data).map(([name, value]) => html`<div><code>${name}</code> ${value}</div>`);

/** @param {number} seconds */
const time = (seconds) => new Date(seconds * 1000).toLocaleString();

export function Models() {
  const { data, error, status } = useAnswer(`${API}/models`);
  return html`
    <section aria-labelledby="models-title">
      <h2 id="models-title">Models</h2>
      <${Problem} text=${error} status=${status} />
      ${data &&
      (data.models.length
        ? html`<div class="card scroll" tabindex="0" role="region" aria-label="models"><table>
            <thead><tr><th scope="col">Model</th><th scope="col">Data</th></tr></thead>
            <tbody>${data.models.map(
              (/** @type {any} */ one) => html`<tr><td><a href="#/model/${encodeURIComponent(one.name)}">${one.name}</a></td><td>${pairs(one.data)}</td></tr>`,
            )}</tbody>
          </table></div>`
        : html`<p class="faint">There are no models.</p>`)}
    </section>
  `;
}

/**
 * Which version each came of: what its data say, else the one before it.
 * @param {any[]} versions
 * @returns {{version: any, parent: number | null, said: boolean, depth: number}[]}
 */
export function lineage(versions) {
  const depths = new Map();
  return versions.map((version, index) => {
    const named = PARENTS.map((name) => version.data[name]).find((value) => value !== undefined);
    const number = named === undefined ? NaN : Number(String(named).replace(/^.*@/, ""));
    const said = Number.isInteger(number) && number < version.number;
    const parent = said ? number : index ? versions[index - 1].number : null;
    const branches = said && index > 0 && parent !== versions[index - 1].number;
    const depth = (depths.get(parent) ?? 0) + (branches ? 1 : 0);
    depths.set(version.number, depth);
    return { version, parent, said, depth };
  });
}

/** @param {{name: string}} properties */
export function Model({ name }) {
  const path = `${API}/models/${encodeURIComponent(name)}`;
  const { data, error, status } = useAnswer(path);
  return html`
    <section aria-labelledby="model-title">
      <h2 id="model-title">${name}</h2>
      <${Problem} text=${error} status=${status} />
      ${data && html`
        ${pairs(data.data)}
        <div class="card scroll" tabindex="0" role="region" aria-label="versions"><table class="stack">
          <caption>${counted(data.versions.length, "version")}, the newest first</caption>
          <thead><tr><th scope="col">Version</th><th scope="col">Parent</th><th scope="col">Created</th><th scope="col" class="number">Size</th><th scope="col">Storage</th><th scope="col">Data</th><th scope="col">Hash</th><th scope="col">File</th></tr></thead>
          <tbody>
            ${lineage(data.versions).toReversed().map(({ version, parent, said, depth }) => html`
              <tr>
                <th scope="row"><span aria-hidden="true">${"│ ".repeat(depth)}●</span> ${version.number}</th>
                <td data-label="Parent"><span>${parent === null ? "–" : html`${parent}${said ? "" : html` <small>(the previous one)</small>`}`}</span></td>
                <td data-label="Created">${time(version.time)}</td>
                <td data-label="Size" class="number">${bytes(version.size)}</td>
                <td data-label="Storage">${version.archived ? "archived" : html`<span class="warn">in memory</span>`}</td>
                <td data-label="Data"><div>${pairs(version.data)}</div></td>
                <td data-label="Hash" class="mono">${version.hash.slice(0, 12)}</td>
                <td data-label="File"><a href="${ROOT}${path}/${version.number}" download aria-label="download version ${version.number}">Download</a></td>
              </tr>`)}
          </tbody>
        </table></div>`}
    </section>
  `;
}

export function Directory() {
  const { data, error, status, again } = useAnswer(`${API}/directory`);
  return html`
    <section aria-labelledby="directory-title">
      <div class="row"><h2 id="directory-title">Directory</h2><button class="end" onClick=${again}>Look again</button></div>
      <${Problem} text=${error} status=${status} />
      ${data && html`
        <p role="status">${data.all} registered.</p>
        <div class="card scroll" tabindex="0" role="region" aria-label="registrations"><table>
          <thead><tr><th scope="col">Kind</th><th scope="col">Endpoint</th><th scope="col">Properties</th><th scope="col">Id</th><th scope="col">Stays</th></tr></thead>
          <tbody>${data.services.map((/** @type {any} */ one) => html`
            <tr><td>${one.kind}</td><td class="mono">${one.protocol.toLowerCase()} ${one.endpoint}</td><td>${pairs(one.properties)}</td><td class="number">${one.id}</td><td>${one.permanent ? "always" : "while it answers"}</td></tr>`)}
          </tbody>
        </table></div>`}
    </section>
  `;
}

export function Server() {
  const [rows, setRows] = useState(/** @type {Map<string, any>} */ (new Map()));
  useView({ view: "server" }, (news, first) => setRows((/** @type {any} */ old) => applied(first ? new Map() : old, news)));
  const all = [...rows.values()];
  /** @param {string} title @param {any[]} some */
  const table = (title, some) => html`
    <div class="card scroll" tabindex="0" role="region" aria-label=${title}><table>
      <caption>${title}</caption>
      <tbody>${some.map((row) => html`<tr><th scope="row">${row.name}</th><td class="number">${row.name.startsWith("seconds") ? duration(row.value) : row.value}</td></tr>`)}</tbody>
    </table></div>`;
  const measured = all.filter((row) => row.metric);
  return html`
    <section aria-labelledby="server-title">
      <h2 id="server-title">Server</h2>
      ${table("Figures", all.filter((row) => !row.metric))}
      ${measured.length
        ? table("Metrics", measured)
        : html`<p class="faint">Metrics are shown when the server measures: --prometheus_port.</p>`}
    </section>
  `;
}

export function Log() {
  const [records, setRecords] = useState(/** @type {any[]} */ ([]));
  const [level, setLevel] = useState("INFO");
  const [search, setSearch] = useState("");
  useView({ view: "log" }, (news, first) => {
    const skipped = news.skipped ? [{ time: 0, level: "WARNING", name: "", text: `${news.skipped} records are not shown` }] : [];
    setRecords((/** @type {any[]} */ old) => [...(first ? [] : old), ...skipped, ...(news.records ?? [])].slice(-MAX_RECORDS));
  });
  const least = LEVELS.indexOf(level);
  const shown = records.filter((one) => LEVELS.indexOf(one.level) >= least && `${one.name} ${one.text}`.includes(search));
  const kinds = /** @type {Record<string, string>} */ ({ WARNING: "warn", ERROR: "bad", CRITICAL: "bad" });
  return html`
    <section aria-labelledby="log-title">
      <div class="row">
        <h2 id="log-title">Log</h2>
        <label>Level <select value=${level} onChange=${(/** @type {any} */ event) => setLevel(event.target.value)}>${LEVELS.map((name) => html`<option>${name}</option>`)}</select></label>
        <label>Search <input type="search" value=${search} onInput=${(/** @type {any} */ event) => setSearch(event.target.value)} /></label>
      </div>
      <div class="card scroll log" tabindex="0" role="log" aria-label="records">
        <table><tbody>
          ${shown.toReversed().map((one) => html`<tr><td class="mono">${one.time ? new Date(one.time * 1000).toLocaleTimeString() : ""}</td><td><span class=${kinds[one.level] ?? ""}>${one.level}</span></td><td class="mono">${one.name}</td><td><pre>${one.text}</pre></td></tr>`)}
        </tbody></table>
        ${!shown.length && html`<p class="faint">Nothing.</p>`}
      </div>
    </section>
  `;
}
