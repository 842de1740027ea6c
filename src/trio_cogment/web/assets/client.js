// What all pages share: the way to the server, and small parts of pages.
// @ts-check

import { h, render } from "./vendor/preact.js";
import { useEffect, useRef, useState } from "./vendor/preact-hooks.js";
import htm from "./vendor/htm.js";

export { h, render, useEffect, useRef, useState };
export const html = htm.bind(h);

/** What stands before each path: what a proxy has there, and a token, which counts for everything that the page asks for. */
export const ROOT = new URL("..", import.meta.url).pathname.replace(/\/$/, "");

/** The same without the token: for who comes without one. */
export const OUTSIDE = ROOT.replace(/\/~[^/]*$/, "");

/** An answer that says no.  */
export class Refused extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/**
 * Ask the server.
 * @param {string} path
 * @param {{method?: string, body?: unknown, json?: string, signal?: AbortSignal}} [options]  `json`: the body, written
 * @returns {Promise<Response>}
 */
export async function ask(path, { method = "GET", body, json, signal } = {}) {
  const text = json ?? (body === undefined ? undefined : JSON.stringify(body));
  const answer = await fetch(ROOT + path, {
    method,
    signal,
    credentials: "same-origin",
    ...(text === undefined ? {} : { body: text, headers: { "content-type": "application/json" } }),
  });
  if (!answer.ok) {
    let message = `${answer.status} ${answer.statusText}`;
    try {
      message = (await answer.json()).message || message;
    } catch {
      // it is no JSON: the status has to do
    }
    throw new Refused(answer.status, message);
  }
  return answer;
}

/**
 * Ask the server for JSON.
 * @param {string} path
 * @param {{method?: string, body?: unknown, json?: string, signal?: AbortSignal}} [options]  `json`: the body, written
 * @returns {Promise<any>}
 */
export async function askJson(path, options) {
  return (await ask(path, options)).json();
}

/**
 * Have something that is asked for once, and again when `path` changes.
 * @param {string} path
 * @returns {{data?: any, error?: string, status?: number, again: () => void}}
 */
export function useAnswer(path) {
  const [found, set] = useState(/** @type {{path: string, data?: any, error?: string, status?: number}} */ ({ path: "" }));
  const [round, setRound] = useState(0);
  useEffect(() => {
    const controller = new AbortController();
    askJson(path, { signal: controller.signal }).then(
      (data) => set({ path, data }),
      (error) => controller.signal.aborted || set({ path, error: error.message, status: error.status }),
    );
    return () => controller.abort();
  }, [path, round]);
  const again = () => setRound(round + 1);
  return found.path === path ? { ...found, again } : { again };
}

/**
 * A WebSocket that is opened again when it is lost. Messages are JSON, as bytes.
 */
export class Line {
  /**
   * @param {string} path
   * @param {{onMessage: (message: any) => void, onState: (state: "open" | "lost" | "refused", why: string) => void}} listener
   */
  constructor(path, listener) {
    this.path = path;
    this.listener = listener;
    /** @type {WebSocket | null} */
    this.socket = null;
    this.closed = false;
    this.attempts = 0;
    this.open();
  }

  open() {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = (this.socket = new WebSocket(`${scheme}//${location.host}${ROOT}${this.path}`));
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      this.attempts = 0;
      this.listener.onState("open", "");
    };
    socket.onmessage = (event) => this.listener.onMessage(JSON.parse(new TextDecoder().decode(event.data)));
    socket.onclose = (event) => {
      this.socket = null;
      if (this.closed) return;
      if (event.code === 1008 || event.code >= 4000) {
        this.listener.onState("refused", event.reason);
        return;
      }
      this.listener.onState("lost", event.reason);
      const seconds = Math.min(10, 0.5 * 2 ** this.attempts++) * (0.5 + Math.random() / 2);
      setTimeout(() => this.closed || this.open(), seconds * 1000);
    };
  }

  /** @param {unknown} message */
  send(message) {
    if (this.socket?.readyState === WebSocket.OPEN) {
      this.socket.send(new TextEncoder().encode(JSON.stringify(message)));
    }
  }

  close() {
    this.closed = true;
    this.socket?.close();
  }
}

/** @param {number} seconds */
export function duration(seconds) {
  const whole = Math.floor(seconds);
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  const two = (/** @type {number} */ value) => String(value).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

/**
 * So many of something, as people read it: 1 sample, 5 samples.
 * @param {number} number @param {string} noun
 */
export const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

/** @param {number} bytes */
export function bytes(bytes) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let size = bytes;
  let unit = 0;
  while (size >= 1000 && unit < units.length - 1) {
    size /= 1000;
    unit++;
  }
  return `${unit ? size.toPrecision(3) : size} ${units[unit]}`;
}

/**
 * A question that has to be answered before something is done that cannot be taken back.
 * @param {{title: string, text: string, action: string, onDone: (yes: boolean) => void}} properties
 */
export function Confirm({ title, text, action, onDone }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => dialog.current?.showModal(), []);
  return html`
    <dialog ref=${dialog} aria-labelledby="confirm-title" onCancel=${() => onDone(false)}>
      <h2 id="confirm-title">${title}</h2>
      <p>${text}</p>
      <div class="row">
        <button class="danger" onClick=${() => onDone(true)}>${action}</button>
        <button onClick=${() => onDone(false)}>Cancel</button>
      </div>
    </dialog>
  `;
}

/**
 * What went wrong, where screen readers say it at once. What a server does not have (501) is nothing wrong.
 * @param {{text?: string, status?: number}} properties
 */
export function Problem({ text, status }) {
  if (!text) return null;
  return status === 501
    ? html`<p class="note" role="status">${text}</p>`
    : html`<p class="note bad" role="alert">${text}</p>`;
}
