// Stored trials: found, replayed, compared, downloaded.
// @ts-check

import { Problem, ROOT, ask, askJson, counted, html, useAnswer, useEffect, useRef, useState } from "../../assets/client.js";
import { Plot } from "./plot.js";
import { numbersIn } from "./numbers.js";
import { Curves, Messages, Sample, State, link } from "./trials.js";

const API = "/dashboard/api/stored";
/** Samples of one trial that a tab keeps, and characters of all of them. */
const MAX_SAMPLES = 20_000;
const MAX_CHARACTERS = 100_000_000;
const SPEEDS = [0.25, 0.5, 1, 2, 4, 8, 16, 64];

/** @param {string} id */
const path = (id) => `${API}/${encodeURIComponent(id)}`;

export function Stored() {
  const [asked, setAsked] = useState({ search: "", property: "" });
  const { data, error, status, again } = useAnswer(`${API}?${new URLSearchParams(asked)}`);
  const [chosen, setChosen] = useState(/** @type {string[]} */ ([]));
  /** @param {any} event */
  function find(event) {
    event.preventDefault();
    const form = new FormData(event.target);
    setAsked({ search: String(form.get("search")), property: String(form.get("property")) });
    again();
  }
  /** @param {string} id */
  const toggle = (id) => setChosen(chosen.includes(id) ? chosen.filter((one) => one !== id) : [...chosen, id]);
  return html`
    <section aria-labelledby="stored-title">
      <h2 id="stored-title">Stored trials</h2>
      <form class="row" role="search" onSubmit=${find}>
        <label>Search <input type="search" name="search" /></label>
        <label>Property <input name="property" placeholder="name=value" /></label>
        <button class="main">Find</button>
        <a
          class="button end"
          href=${chosen.length > 1 ? `#/compare/${chosen.map(encodeURIComponent).join(",")}` : undefined}
          aria-disabled=${chosen.length < 2}
        >Compare ${chosen.length || ""}</a>
      </form>
      <${Problem} text=${error} status=${status} />
      ${data &&
      html`
        <p role="status">${data.matched} found${data.matched > data.trials.length ? `, the newest ${data.trials.length} are shown` : ""}.</p>
        <div class="card scroll" tabindex="0" role="region" aria-label="stored trials">
          <table class="stack">
            <thead>
              <tr>
                <th scope="col"><span class="hidden-text">Compare</span></th><th scope="col">Trial</th><th scope="col">State</th>
                <th scope="col" class="number">Samples</th><th scope="col">Environment</th><th scope="col">User</th>
                <th scope="col">Properties</th><th scope="col">End</th><th scope="col">File</th>
              </tr>
            </thead>
            <tbody>
              ${data.trials.map(
                (/** @type {any} */ row) => html`
                  <tr key=${row.id}>
                    <td data-label="Compare"><input type="checkbox" aria-label="compare ${row.id}" checked=${chosen.includes(row.id)} onChange=${() => toggle(row.id)} /></td>
                    <th scope="row"><a href="#/replay/${encodeURIComponent(row.id)}">${row.id}</a></th>
                    <td data-label="State"><${State} state=${row.state} />${!row.complete && row.state === "ENDED" ? html` <span class="tag warn">incomplete${row.lost > 0 ? `, ${row.lost} lost` : ""}</span>` : ""}</td>
                    <td data-label="Samples" class="number">${row.samples}</td>
                    <td data-label="Environment">${row.environment}</td>
                    <td data-label="User">${row.user}</td>
                    <td data-label="Properties">${Object.entries(row.properties).map(([name, value]) => `${name}=${value}`).join(", ")}</td>
                    <td data-label="End">${row.trouble ? html`<span class="bad" title=${row.trouble}>samples wait to be stored</span>` : row.end ? row.end.cause.toLowerCase().replaceAll("_", " ") : ""}</td>
                    <td data-label="File"><a href="${ROOT}${path(row.id)}/download" download aria-label="download ${row.id}">Download</a></td>
                  </tr>
                `,
              )}
            </tbody>
          </table>
        </div>
      `}
    </section>
  `;
}

/**
 * The samples of a trial, as they come.
 * @param {string} id
 * @param {boolean} payloads
 */
function useSamples(id, payloads) {
  const [state, setState] = useState({ samples: /** @type {any[]} */ ([]), done: false, cut: false, error: "" });
  useEffect(() => {
    const controller = new AbortController();
    const samples = /** @type {any[]} */ ([]);
    read().catch((error) => controller.signal.aborted || setState({ samples, done: true, cut: false, error: error.message }));
    async function read() {
      const answer = await ask(`${path(id)}/samples?payloads=${payloads ? 1 : 0}`, { signal: controller.signal });
      const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader();
      const decoder = new TextDecoder();
      let rest = "";
      let characters = 0;
      for (;;) {
        const { done, value } = await reader.read();
        const lines = (rest + decoder.decode(value, { stream: !done })).split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines) {
          characters += line.length;
          samples.push(JSON.parse(line));
        }
        const cut = samples.length >= MAX_SAMPLES || characters >= MAX_CHARACTERS;
        setState({ samples: samples.slice(0, MAX_SAMPLES), done: done || cut, cut, error: "" });
        if (cut) controller.abort();
        if (done || cut) return;
      }
    }
    return () => controller.abort();
  }, [id, payloads]);
  return state;
}

/**
 * The curves of samples.
 * @param {any[]} samples
 * @param {boolean} actions
 */
function curvesOf(samples, actions) {
  /** @type {Record<string, {ticks: number[], values: number[]}>} */
  const curves = {};
  /** @param {string} name @param {number} tick @param {number} value */
  const add = (name, tick, value) => {
    const curve = (curves[name] ??= { ticks: [], values: [] });
    curve.ticks.push(tick);
    curve.values.push(value);
  };
  for (const sample of samples) {
    for (const [name, actor] of Object.entries(/** @type {Record<string, any>} */ (sample.actors))) {
      if (Number.isFinite(actor.reward)) add(`reward|${name}`, sample.tick, actor.reward);
      if (!actions) continue;
      for (const [place, value] of numbersIn(actor.action)) add(`action|${name}|${place}`, sample.tick, value);
    }
  }
  return curves;
}

/** @param {{id: string}} properties */
export function Replay({ id }) {
  const { data, error } = useAnswer(path(id));
  const { samples, done, cut, error: problem } = useSamples(id, true);
  const [at, setAt] = useState(0);
  const [playing, setPlaying] = useState(false);
  const [speed, setSpeed] = useState(1);
  const last = Math.max(0, samples.length - 1);
  const index = Math.min(at, last);
  useEffect(() => {
    if (!playing) return undefined;
    if (index >= last) {
      if (done) setPlaying(false);
      return undefined;
    }
    const seconds = Math.min(5, Math.max(0, samples[index + 1].time - samples[index].time)) / speed;
    // Several samples at once where they follow each other faster than a screen shows them.
    const step = seconds < 0.03 ? Math.max(1, Math.round(0.03 / Math.max(seconds, 0.0005))) : 1;
    const timer = setTimeout(() => setAt(Math.min(last, index + step)), Math.max(seconds, 0.03) * 1000);
    return () => clearTimeout(timer);
  }, [playing, index, speed, last, done]);
  const curves = useRef(/** @type {{count: number, found: any}} */ ({ count: -1, found: {} }));
  if (curves.current.count !== samples.length) curves.current = { count: samples.length, found: curvesOf(samples, true) };
  const sample = samples[index];
  const said = samples.slice(Math.max(0, index - 50), index + 1).flatMap((/** @type {any} */ one) => one.messages ?? []);
  /** @param {number} value */
  const go = (value) => {
    setPlaying(false);
    setAt(Math.max(0, Math.min(last, value)));
  };
  const [branching, setBranching] = useState({ busy: false, problem: "" });
  async function branch() {
    setPlaying(false);
    setBranching({ busy: true, problem: "" });
    try {
      const json = JSON.stringify({ branch_of: id, tick: sample.tick, user_id: "dashboard" });
      const { trial_id: started } = await askJson("/dashboard/api/trials", { method: "POST", json });
      location.hash = link(started);
    } catch (failure) {
      setBranching({ busy: false, problem: String(failure instanceof Error ? failure.message : failure) });
    }
  }
  const lineage = data?.params?.properties?.["branch.trial"];
  return html`
    <section aria-labelledby="replay-title">
      <div class="row">
        <h2 id="replay-title">Replay of ${id}</h2>
        <a class="end" href="${ROOT}${path(id)}/download" download>Download</a>
        <a href=${link(id)}>Live</a>
      </div>
      <${Problem} text=${error || problem} />
      ${data &&
      html`<p>
        <${State} state=${data.state} /> ${counted(data.samples, "sample")}
        ${data.end && html` · ${data.end.cause.toLowerCase().replaceAll("_", " ")}${data.end.reason && `: ${data.end.reason}`}`}
        ${!done && html` · <span role="status">${samples.length} read…</span>`}
        ${cut && html` · <span class="warn">only the first ${samples.length} are shown</span>`}
        ${lineage && html` · a branch of <a href="#/replay/${encodeURIComponent(lineage)}">${lineage}</a> from tick ${data.params.properties["branch.tick"]} on`}
      </p>`}
      <div class="card" role="group" aria-label="replay">
        <div class="row">
          <button class="main" aria-pressed=${playing} onClick=${() => {
            if (!playing && index >= last) setAt(0);
            setPlaying(!playing);
          }}>${playing ? "Pause" : "Play"}</button>
          <button onClick=${() => go(index - 1)} aria-label="one tick back">◀</button>
          <button onClick=${() => go(index + 1)} aria-label="one tick on">▶</button>
          <label>Speed
            ${" "}<select value=${speed} onChange=${(/** @type {any} */ event) => setSpeed(Number(event.target.value))}>
              ${SPEEDS.map((value) => html`<option value=${value}>${value}×</option>`)}
            </select>
          </label>
          <span class="end mono" aria-live="off">tick ${sample ? sample.tick : "–"} of ${samples.length ? samples[last].tick : "–"}</span>
        </div>
        <label><span class="hidden-text">Position</span>
          <input type="range" min="0" max=${last} value=${index} aria-valuetext="tick ${sample?.tick ?? 0}"
            onInput=${(/** @type {any} */ event) => go(Number(event.target.value))} />
        </label>
        <div class="row">
          <button disabled=${!sample || branching.busy} onClick=${branch}
            title="A new trial that begins at this tick, with the same parameters">Branch from tick ${sample ? sample.tick : "–"}</button>
        </div>
        <${Problem} text=${branching.problem} />
      </div>
      <${Curves} curves=${curves.current.found} at=${sample?.tick} />
      ${sample && html`<${Sample} sample=${sample} title="Sample" />`}
      <${Messages} messages=${said} />
      ${data && html`<details class="card"><summary>Parameters</summary><pre>${JSON.stringify(data.params, null, 2)}</pre></details>`}
    </section>
  `;
}

/** @param {{ids: string[]}} properties */
export function Compare({ ids }) {
  const [found, setFound] = useState(/** @type {Record<string, any>} */ ({}));
  const [summed, setSummed] = useState(true);
  /** @type {Record<string, any>} */
  const curves = {};
  for (const id of ids) {
    for (const [name, curve] of Object.entries(/** @type {Record<string, any>} */ (found[id] ?? {}))) {
      let sum = 0;
      const values = summed ? curve.values.map((/** @type {number} */ value) => (sum += value)) : curve.values;
      curves[`${id} ${name.split("|").slice(1).join(" ")}`] = { ticks: curve.ticks, values };
    }
  }
  const rows = Object.entries(curves).map(([name, curve]) => {
    const total = summed ? (curve.values.at(-1) ?? 0) : curve.values.reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, 0);
    return { name, ticks: curve.ticks.length, total };
  });
  return html`
    <section aria-labelledby="compare-title">
      <div class="row">
        <h2 id="compare-title">Rewards of ${ids.length} trials</h2>
        <label class="end"><input type="checkbox" checked=${summed} onChange=${() => setSummed(!summed)} /> summed up</label>
      </div>
      ${ids.map((id) => html`<${Rewards} key=${id} id=${id} onFound=${(/** @type {any} */ one) => setFound((/** @type {any} */ old) => ({ ...old, [id]: one }))} />`)}
      <div class="card"><${Plot} title="Rewards" curves=${curves} /></div>
      <div class="card scroll" tabindex="0" role="region" aria-label="sums">
        <table>
          <thead><tr><th scope="col">Actor</th><th scope="col" class="number">Rewards</th><th scope="col" class="number">Sum</th><th scope="col" class="number">Mean</th></tr></thead>
          <tbody>
            ${rows.map((row) => html`<tr><th scope="row">${row.name}</th><td class="number">${row.ticks}</td><td class="number">${row.total.toPrecision(5)}</td><td class="number">${(row.total / row.ticks).toPrecision(5)}</td></tr>`)}
          </tbody>
        </table>
      </div>
    </section>
  `;
}

/** @param {{id: string, onFound: (curves: any) => void}} properties */
function Rewards({ id, onFound }) {
  const { samples, done, error } = useSamples(id, false);
  useEffect(() => {
    if (done) onFound(curvesOf(samples, false));
  }, [done]);
  return error ? html`<${Problem} text="${id}: ${error}" />` : done ? null : html`<p role="status">${id}: ${counted(samples.length, "sample")}…</p>`;
}
