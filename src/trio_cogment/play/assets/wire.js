// @ts-check
/** The WebSocket of the page: it is opened again when it breaks, and measures how long an answer takes. */

/**
 * @typedef {{type: string, blobList: Blob[], [name: string]: any}} Message  what the server sends
 */

const PING_MS = 2000;
/** A connection on which nothing has come for so long after a ping is given up: a network that is lost says nothing. */
const SILENCE_MS = 10_000;
const FIRST_PAUSE_MS = 400;
const LONGEST_PAUSE_MS = 5000;
/** With these codes the server says that there is no use in trying again. */
const REFUSED = new Set([1008, 4000]);

/**
 * Read a message: the length of its header, the header as JSON, and the bytes of pictures.
 * @param {ArrayBuffer} data
 * @returns {Message}
 */
export function decode(data) {
  const size = new DataView(data).getUint32(0);
  const message = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, size)));
  let at = 4 + size;
  message.blobList = (message.blobs ?? []).map((/** @type {{type: string, size: number}} */ blob) => {
    const bytes = new Uint8Array(data, at, blob.size);
    at += blob.size;
    return new Blob([bytes], { type: blob.type });
  });
  return message;
}

/** JSON as somebody has typed it; it is sent as it stands, because numbers beyond 2^53 would be rounded here. */
export class JsonText {
  /** @param {string} text */
  constructor(text) {
    JSON.parse(text); // raises SyntaxError
    this.text = text;
  }
}

/**
 * Return a value as JSON, with each `JsonText` in its place.
 * @param {any} value
 * @returns {string}
 */
export function encode(value) {
  if (value instanceof JsonText) return value.text;
  if (Array.isArray(value)) return `[${value.map(encode).join(",")}]`;
  if (value === null || Object.getPrototypeOf(value) !== Object.prototype) return JSON.stringify(value) ?? "null";
  const fields = Object.entries(value).filter(([, inner]) => inner !== undefined);
  return `{${fields.map(([name, inner]) => `${JSON.stringify(name)}:${encode(inner)}`).join(",")}}`;
}

export class Wire {
  /**
   * @param {(message: Message) => void} onMessage
   * @param {(state: "open" | "lost" | "refused", reason: string) => void} onState
   * @param {() => object} greeting  what is said first on each connection
   * @param {string} base  the address of the page whose socket it is
   */
  constructor(onMessage, onState, greeting, base = location.href) {
    this.base = base;
    this.onMessage = onMessage;
    this.onState = onState;
    this.greeting = greeting;
    /** @type {number | null} milliseconds */
    this.latency = null;
    this.pause = FIRST_PAUSE_MS;
    this.ended = false;
    this.isHeard = false;
    /** @type {number | null} when what has no answer yet was said first */
    this.waiting = null;
    /** @type {WebSocket | null} */
    this.socket = null;
    this.encoder = new TextEncoder();
    this.pings = setInterval(() => this.ping(), PING_MS);
    this.open();
  }

  open() {
    if (this.ended) return;
    const address = new URL("socket", this.base);
    address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(address);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      this.pause = FIRST_PAUSE_MS;
      this.isHeard = false;
      this.say(this.greeting());
      this.ping();
    };
    socket.onmessage = (event) => this.take(decode(event.data));
    socket.onclose = (event) => this.closed(event);
    this.socket = socket;
    this.waiting = performance.now();
  }

  /** @param {Message} message */
  take(message) {
    this.waiting = null;
    // A server that has nothing to say yet may still refuse.
    if (!this.isHeard) this.onState("open", "");
    this.isHeard = true;
    if (message.type === "pong") {
      this.latency = performance.now() - message.sent;
    } else {
      if (message.type === "dismissed") this.ended = true;
      this.onMessage(message);
    }
  }

  /** @param {CloseEvent} event */
  closed(event) {
    this.waiting = null;
    if (this.ended) return;
    if (REFUSED.has(event.code)) {
      this.ended = true;
      this.onState("refused", event.reason);
      return;
    }
    this.onState("lost", event.reason);
    setTimeout(() => this.open(), this.pause);
    this.pause = Math.min(2 * this.pause, LONGEST_PAUSE_MS);
  }

  ping() {
    if (this.waiting !== null && performance.now() - this.waiting > SILENCE_MS && this.socket) {
      // It would wait for the other end before it says that it is closed.
      this.socket.onopen = this.socket.onmessage = this.socket.onclose = null;
      this.socket.close();
      this.closed(new CloseEvent("close", { code: 1006 }));
      return;
    }
    if (this.socket?.readyState === WebSocket.OPEN) this.waiting ??= performance.now();
    this.say({ type: "ping", sent: performance.now(), took: this.latency });
  }

  /**
   * Say something, if there is a connection; what is said without one is of no use later.
   * @param {object} message
   */
  say(message) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(this.encoder.encode(encode(message)));
  }

  end() {
    this.ended = true;
    clearInterval(this.pings);
    this.socket?.close();
  }
}
