// @ts-check
/**
 * The module `trio-cogment` of a page of one's own: what the person may see comes in, and what the person does goes out.
 *
 * The server puts it into the page, so it is there without a request. The page is in a frame that reaches nothing else;
 * the page around it has the connection, and keeps it when it breaks.
 */

/**
 * What there is to be seen now.
 * @typedef {object} Seen
 * @property {number | null} tick  null: the trial has not begun
 * @property {boolean} asked  an action is expected
 * @property {any} observation  numbers, lists, texts; of a dictionary or a tuple an object with a name for each part
 * @property {number | null} reward  that came with this observation
 * @property {Blob | null} picture  what the environment renders, if that is a picture
 * @property {string} text  the same, if it is a text
 * @property {Record<string, any>} parts  everything that the generated page would show, by its name
 * @property {Choice[]} choices  the actions, if there are a few to choose from
 * @property {{reason: string} | null} over  the trial is over
 */

/** @typedef {{value: any, label: string, allowed: boolean}} Choice */

/**
 * Somebody of the group; only in experiments.
 * @typedef {object} Member
 * @property {number} place  in the group, from 1
 * @property {string} role  the name of the agent that they play
 * @property {boolean} you
 * @property {"here" | "reading" | "away" | "bot" | "gone"} state
 * @property {number | null} [seconds]  of who is away: how long the trial still waits for them
 */

/**
 * @typedef {object} Handlers
 * @property {(seen: Seen, game: Game) => void} [seen]  called with each new observation, and when the person is asked
 * @property {(message: {from: string, text: string}, game: Game) => void} [message]  somebody has said something
 * @property {(reward: {value: number, total: number, from: string[]}, game: Game) => void} [reward]
 * @property {(members: Member[], game: Game) => void} [members]  somebody has come, or gone
 * @property {(reason: string, game: Game) => void} [refused]  what was done last was not possible
 */

/** @param {any} part @param {Blob[]} blobs */
function valueOf(part, blobs) {
  switch (part.kind) {
    case "image":
      return blobs[part.blob] ?? null;
    case "grid":
      return part.rows;
    case "numbers":
      return part.values;
    case "text":
      return part.text;
    case "array":
      return null; // too large to be sent
    default:
      return part.value;
  }
}

/** @param {any} message @returns {Seen} */
function seenIn(message) {
  /** @type {Record<string, any>} */
  const parts = {};
  /** @type {Record<string, any>} */
  const inner = {};
  for (const part of message.parts) {
    if (part.name in parts) continue; // the first one without a name is what is rendered
    parts[part.name] = valueOf(part, message.blobs);
    const found = part.name.match(/^observation[.[](.*?)\]?$/);
    if (found) inner[found[1]] = parts[part.name];
  }
  const rendered = parts[""];
  const options = message.form?.kind === "choice" ? message.form.options : [];
  return {
    tick: message.tick,
    asked: message.asked !== null,
    observation: "observation" in parts ? parts.observation : Object.keys(inner).length > 0 ? inner : null,
    reward: parts.reward ?? null,
    picture: rendered instanceof Blob ? rendered : null,
    text: typeof rendered === "string" ? rendered : "",
    parts,
    choices: options.map((/** @type {any} */ each) => ({ value: each.value, label: each.label, allowed: each.allowed !== false })),
    over: message.over ? { reason: message.over.reason ?? "" } : null,
  };
}

/** The trial, as the person's page has it; `connect` makes it. */
export class Game {
  /** @param {Handlers} handlers */
  constructor(handlers) {
    /** The name of the agent that the person plays; empty until the first observation. */
    this.role = "";
    /** @type {Seen | null} what there is to be seen now */
    this.seen = null;
    /** @type {Member[]} the group, with the person among them; empty where there is none */
    this.members = [];
    /** @type {string[]} who can be told something, or given a reward; the file of an experiment says whether anybody can */
    this.receivers = [];
    /** The sum of the rewards that others have given. */
    this.total = 0;
    this.handlers = handlers;
    this.deadline = Infinity;
    this.told = { number: 0, key: -Infinity };
    addEventListener("message", (event) => event.source === parent && this.take(event.data));
    new ResizeObserver(() => this.tell({ type: "height", height: document.documentElement.offsetHeight })).observe(
      document.documentElement,
    );
    this.tell({ type: "ready", module: true });
  }

  /**
   * Act, if an action is expected.
   * @param {any} action  as JSON has it: a number, a text, a list, an object
   * @returns {boolean} whether it was sent; it may still be refused
   */
  act(action) {
    if (!this.seen?.asked) return false;
    this.seen = { ...this.seen, asked: false };
    this.tell({ type: "act", action });
    return true;
  }

  /**
   * Say something to one of `receivers`; without a name, to each of them.
   * @param {string} text @param {string} [to]
   */
  say(text, to) {
    for (const each of to === undefined ? this.receivers : [to]) this.tell({ type: "message", to: each, text });
  }

  /**
   * Give a reward to one of `receivers`.
   * @param {number} value @param {string} to
   */
  reward(value, to) {
    this.tell({ type: "reward", to, value });
  }

  /** @returns {number | null} how many seconds are left for the action; null: there is no limit, or none is expected */
  secondsLeft() {
    return this.deadline === Infinity ? null : Math.max((this.deadline - performance.now()) / 1000, 0);
  }

  /** @param {object} message */
  tell(message) {
    // The page around has another origin, which this one cannot name; it is the one that the server has made.
    parent.postMessage(message, "*");
  }

  /** @param {any} message */
  take(message) {
    if (message?.type === "observation") {
      this.role = message.actor;
      this.receivers = message.receivers;
      this.total = message.total;
      this.deadline = message.asked === null || message.seconds === null ? Infinity : performance.now() + 1000 * message.seconds;
      this.seen = seenIn(message);
      this.handlers.seen?.(this.seen, this);
    } else if (message?.type === "members") {
      this.members = message.members;
      this.handlers.members?.(this.members, this);
    } else if (message?.type === "notices") {
      for (const notice of message.notices) {
        // After a lost connection those of before come again, with the numbers that they had.
        const by = notice.number === undefined ? "key" : "number";
        if (notice[by] > this.told[by]) this.hear(notice);
        this.told[by] = Math.max(this.told[by], notice[by]);
      }
    }
  }

  /** @param {any} notice */
  hear(notice) {
    switch (notice.type) {
      case "message":
        this.handlers.message?.({ from: notice.from, text: notice.text }, this);
        break;
      case "reward":
        this.total = notice.total;
        this.handlers.reward?.({ value: notice.value, total: notice.total, from: notice.from }, this);
        break;
      case "late":
        this.handlers.refused?.("that action came too late", this);
        break;
      case "refused":
        if (this.seen) this.seen = { ...this.seen, asked: true };
        this.handlers.refused?.(notice.reason, this);
    }
  }
}

/**
 * Connect the page to the trial. The handlers are called from then on, first with what there is.
 * @param {Handlers} handlers
 */
export function connect(handlers) {
  return new Game(handlers);
}
