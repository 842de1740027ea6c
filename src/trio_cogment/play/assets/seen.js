// @ts-check
/** What a page of a seat or a lobby has seen: the newest state, and the notices since it was opened. */

const MOST_NOTICES = 100;

/**
 * @typedef {{
 *   connection: "opening" | "open" | "lost" | "refused", reason: string, place: "" | "lobby" | "seat",
 *   welcome: any, state: any, form: any, notices: any[], dismissed: any, count: number,
 * }} Seen
 */

/** @type {Seen} */
export const NOTHING = {
  connection: "opening",
  reason: "",
  place: "",
  welcome: null,
  state: null,
  form: null,
  notices: [],
  dismissed: null,
  count: 0,
};

/**
 * Return what a page has seen after a message.
 * @param {Seen} seen @param {any} message @returns {Seen}
 */
export function reduce(seen, message) {
  switch (message.type) {
    case "connection":
      return { ...seen, connection: message.state, reason: message.reason };
    case "seat":
    case "lobby": {
      const state = { ...message, since: performance.now() };
      const welcome = message.welcome ?? seen.welcome;
      const form = message.form ?? seen.form;
      // What a page that was loaded again has missed comes with the welcome.
      const history = message.welcome?.history;
      const notices = history ? history.map((/** @type {any} */ each, /** @type {number} */ k) => ({ ...each, key: -1 - k })) : seen.notices;
      return { ...seen, place: message.type, state, welcome, form, notices };
    }
    case "dismissed":
      return { ...seen, dismissed: message };
    case "pong":
      return seen;
    default: {
      const notices = [...seen.notices, { ...message, key: seen.count }].slice(-MOST_NOTICES);
      return { ...seen, notices, count: seen.count + 1 };
    }
  }
}
