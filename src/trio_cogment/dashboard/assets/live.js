// The one WebSocket of the tab: it says what it looks at, and is told what is new.
// @ts-check

import { Line, Refused, ask, useEffect, useRef } from "../../assets/client.js";

/** @typedef {(news: any, first: boolean) => void} Told */

class Live {
  constructor() {
    /** @type {Line | null} */
    this.line = null;
    this.number = 0;
    /** @type {{asked: any, told: Told} | null} */
    this.looking = null;
    this.first = true;
    /** @type {(state: string, why: string) => void} */
    this.onState = () => {};
  }

  open() {
    this.line = new Line("/dashboard/live", {
      onMessage: (message) => {
        if (message.number !== this.number || !this.looking) return; // of what was looked at before
        const first = this.first;
        this.first = false;
        this.looking.told(message, first);
      },
      onState: (state, why) => {
        this.onState(state, why);
        if (state === "open") this.ask();
        if (state === "lost") this.admitted();
      },
    });
  }

  /** A browser does not tell why a WebSocket was refused: ask whether this is (still) somebody who may look. */
  async admitted() {
    try {
      await ask("/dashboard/api/me");
    } catch (failure) {
      if (!(failure instanceof Refused && [401, 403].includes(failure.status))) return;
      this.line?.close();
      this.onState("refused", failure.message);
    }
  }

  ask() {
    this.first = true;
    if (this.looking) this.line?.send({ ...this.looking.asked, number: ++this.number });
  }

  /** @param {any} asked @param {Told} told */
  look(asked, told) {
    this.looking = { asked, told };
    this.ask();
  }

  leave() {
    this.looking = null;
  }
}

export const live = new Live();

/**
 * Look at something for as long as this is on the page.
 * @param {Record<string, string>} asked
 * @param {Told} told
 */
export function useView(asked, told) {
  const latest = useRef(told);
  latest.current = told;
  useEffect(() => {
    live.look(asked, (news, first) => latest.current(news, first));
    return () => live.leave();
  }, [JSON.stringify(asked)]);
}
