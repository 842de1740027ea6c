// @ts-check
/** The seat: what is seen, what can be done, and what is said. */
import { useCallback, useEffect, useRef, useState } from "../../assets/vendor/preact-hooks.js";
import { html } from "./html.js";
import { ActionForm, Choices, direct } from "./forms.js";
import { Parts, Renderer } from "./views.js";
import { session } from "./storage.js";

/** A key or a button that is held for longer acts at each tick. */
const HOLD_MS = 250;
/** For so long the end of a trial can be seen, if there is another one. */
const END_MS = 1500;

const DISMISSALS = /** @type {Record<string, [string, string]>} */ ({
  "taken over": ["You play in another window", "This link was opened again. Only the newest window has the seat."],
  left: ["You have left the game", "The seat was given up."],
  over: ["The game is over", ""],
});

/**
 * Act by keys: a press at once, if an action is asked for, and while it is held at each tick.
 * @param {any} choice @param {any} state @param {(action: any) => void} act
 */
function useHeld(choice, state, act) {
  const held = useRef(/** @type {{value: any, since: number} | null} */ (null));
  const [, redraw] = useState(0);
  const press = useCallback(
    (/** @type {any} */ value) => {
      if (held.current?.value === value) return;
      held.current = { value, since: performance.now() };
      redraw((count) => count + 1);
      act(choice.wrap(value));
    },
    [choice, act],
  );
  const release = useCallback(() => {
    held.current = null;
    redraw((count) => count + 1);
  }, []);
  useEffect(() => {
    if (state.asked !== null && held.current && performance.now() - held.current.since > HOLD_MS) {
      act(choice.wrap(held.current.value));
    }
  }, [state]);
  useEffect(() => {
    /** @param {KeyboardEvent} event */
    const down = (event) => {
      const target = /** @type {HTMLElement} */ (event.target);
      if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, select, textarea, dialog")) return;
      const key = event.key === " " ? "Space" : event.key.length === 1 ? event.key.toLowerCase() : event.key;
      if (key === "Space" && target.closest("button")) return; // it presses that
      const option = choice?.options.find((/** @type {any} */ each) => each.keys.includes(key) && each.allowed !== false);
      if (!option) return;
      event.preventDefault();
      if (!event.repeat) press(option.value);
    };
    addEventListener("keydown", down);
    addEventListener("keyup", release);
    addEventListener("blur", release);
    return () => {
      removeEventListener("keydown", down);
      removeEventListener("keyup", release);
      removeEventListener("blur", release);
    };
  }, [choice, press, release]);
  return { held: held.current?.value, press, release };
}

/** @param {{choice: any, state: any, act: (action: any) => void}} props */
function Direct({ choice, state, act }) {
  const { held, press, release } = useHeld(choice, state, act);
  return html`<${Choices} options=${choice.options} enabled=${state.asked !== null} held=${held} press=${press}
    release=${release} />`;
}

/** @param {{form: any, state: any, act: (action: any) => void}} props */
function Actions({ form, state, act }) {
  const choice = direct(form);
  return html`<section class="card" aria-labelledby="actions">
    <h2 id="actions">Your action</h2>
    <p role="status" class=${state.asked === null ? "faint" : ""}>
      ${state.over ? "The game is over." : state.asked === null ? "Wait …" : "It is your turn."}
    </p>
    ${choice
      ? html`<${Direct} choice=${choice} state=${state} act=${act} />`
      : html`<${ActionForm} key=${JSON.stringify(form)} form=${form} enabled=${state.asked !== null} send=${act} />`}
  </section>`;
}

/** @param {{down?: boolean}} props */
function Thumb({ down = false }) {
  return html`<svg class=${down ? "thumb down" : "thumb"} viewBox="0 0 24 24" width="22" height="22" aria-hidden="true">
    <path fill="currentColor" d="M2 10h4v11H2zM8 21V9.5L13 2l2 1.5L14 9h8v3l-3.5 9z" />
  </svg>`;
}

/** @param {{receivers: string[], say: (message: object) => void}} props */
function Feedback({ receivers, say }) {
  const [to, setTo] = useState(receivers[0]);
  const [text, setText] = useState("");
  const [value, setValue] = useState("1");
  /** @param {Event} event @param {() => void} then */
  const submit = (event, then) => {
    event.preventDefault();
    then();
  };
  const sendText = () => text && (say({ type: "message", to, text }), setText(""));
  const sendValue = () => value !== "" && say({ type: "reward", to, value: Number(value) });
  return html`<details class="card feedback"><summary><h2>Feedback</h2></summary>
    <label class="block">For
      <select onChange=${(/** @type {any} */ event) => setTo(event.target.value)}>
        ${receivers.map((name) => html`<option selected=${name === to}>${name}</option>`)}
      </select>
    </label>
    <div class="row">
      <button type="button" aria-label="Thumbs up" onClick=${() => say({ type: "reward", to, value: 1 })}><${Thumb} /></button>
      <button type="button" aria-label="Thumbs down" onClick=${() => say({ type: "reward", to, value: -1 })}><${Thumb} down /></button>
      <form class="row" onSubmit=${(/** @type {Event} */ event) => submit(event, sendValue)}>
        <input type="number" step="any" aria-label="Reward" value=${value} size="5"
          onInput=${(/** @type {any} */ event) => setValue(event.target.value)} />
        <button>Reward</button>
      </form>
    </div>
    <form class="row" onSubmit=${(/** @type {Event} */ event) => submit(event, sendText)}>
      <input type="text" class="wide" aria-label="Message" maxlength="4000" value=${text} autocomplete="off"
        onInput=${(/** @type {any} */ event) => setText(event.target.value)} />
      <button>Send</button>
    </form>
  </details>`;
}

/** @param {any} notice */
function told(notice) {
  switch (notice.type) {
    case "message":
      return `${notice.from}: ${notice.text}`;
    case "reward":
      return `Reward ${notice.value}${notice.from.length ? ` from ${notice.from.join(", ")}` : ""}, ${notice.total} in all`;
    case "sent":
      return `Sent: a ${notice.what} for ${notice.to}`;
    case "late":
      return "That action came too late.";
    case "refused":
      return `Not possible: ${notice.reason}`;
    default:
      return `${notice.count} messages were left out: this page is slow.`;
  }
}

/** @param {{notices: any[]}} props */
function Log({ notices }) {
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (list.current) list.current.scrollTop = list.current.scrollHeight; // the newest is what counts
  }, [notices]);
  return html`<section class="card" aria-labelledby="log">
    <h2 id="log">Messages</h2>
    ${notices.length === 0 && html`<p class="faint">None so far.</p>`}
    <div ref=${list} class="log" role="log" tabindex="0" aria-labelledby="log"><ol class="plain">
      ${notices.map((notice) => html`<li key=${notice.key} class=${notice.type}>${told(notice)}</li>`)}
    </ol></div>
  </section>`;
}

/** @param {{dismissed: any, over: any, again: boolean}} props */
function End({ dismissed, over, again }) {
  const [title, text] = DISMISSALS[dismissed.reason] ?? ["The game is over", ""];
  const lobby = session.getItem("trio-cogment lobby");
  useEffect(() => {
    if (again && lobby && dismissed.reason === "over") setTimeout(() => location.replace(lobby), END_MS);
  }, []);
  return html`<div class="card note" role="status">
    <h2>${title}</h2>
    ${text && html`<p>${text}</p>`}
    ${dismissed.reason === "over" && over?.reason && html`<p>${over.reason}</p>`}
    ${dismissed.reason === "taken over"
      ? html`<button class="main" onClick=${() => location.reload()}>Play here</button>`
      : lobby && html`<a class="button" href=${lobby}>Back to the lobby</a>`}
    ${dismissed.reason === "left" && html` <button onClick=${() => location.reload()}>Come back</button>`}
  </div>`;
}

/** @param {{say: (message: object) => void}} props */
function Leave({ say }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  return html`<button type="button" onClick=${() => dialog.current?.showModal()}>Leave the game</button>
    <dialog ref=${dialog} aria-labelledby="leave">
      <h2 id="leave">Leave the game?</h2>
      <p>Somebody else, or nobody, will go on in your place.</p>
      <form method="dialog" class="row">
        <button>Stay</button>
        <button class="danger" onClick=${() => say({ type: "resign" })}>Leave</button>
      </form>
    </dialog>`;
}

const EVERYTHING = ["observation", "actions", "messages", "feedback", "leave"];
/** @type {any[]} */
const NOBODY = [];

/** @param {any[]} parts @returns {any[]} what the environment has drawn or written; everything, if that is nothing */
function drawn(parts) {
  const found = parts.filter((part) => !part.name);
  return found.length ? found : parts;
}

/**
 * @param {{
 *   welcome: any, state: any, form: any, notices: any[], dismissed: any, say: (message: object) => void,
 *   show?: string[], base?: string, members?: any[],
 * }} props  `show`: the parts that are there; `base`: the address of the seat, if the page has another one; `members`: of
 *   the group, for a page of one's own
 */
export function Seat({ welcome, state, form, notices, dismissed, say, show = EVERYTHING, base = "", members = NOBODY }) {
  // One action for a tick: the server would call a second one late.
  const acted = useRef(-1);
  // What was sent over another connection may not have arrived, or not be known any more: the server says who is asked.
  useEffect(() => {
    acted.current = -1;
  }, [welcome]);
  // A key that is pressed as soon as a tick is shown counts for it: the listeners that know the tick come a moment later.
  const latest = useRef(state);
  latest.current = state;
  const act = useCallback(
    (/** @type {any} */ action) => {
      const { asked } = latest.current;
      if (asked === null || acted.current === asked) return;
      acted.current = asked;
      say({ type: "act", tick: asked, action, at: Date.now() });
    },
    [say],
  );
  const refused = notices.at(-1)?.type === "refused";
  useEffect(() => {
    if (refused) acted.current = -1;
  }, [notices]);
  const beside = ["actions", "messages", "feedback", "leave"].some((part) => show.includes(part));
  return html`<div>
    ${dismissed && html`<${End} dismissed=${dismissed} over=${state.over} again=${welcome.again} />`}
    <div class=${beside ? "seat" : ""}>
      <section class="card view" aria-labelledby="view">
        <h2 id="view" class="hidden-text">What you see</h2>
        ${state.tick === null && html`<p role="status">The game has not begun. Please wait.</p>`}
        ${welcome.renderer
          ? html`<${Renderer} welcome=${welcome} state=${{ ...state, form }} notices=${notices} members=${members} act=${act}
              say=${say} base=${base} />`
          : html`<${Parts} parts=${show.includes("observation") ? state.parts : drawn(state.parts)} blobs=${state.blobList} />`}
      </section>
      <div>
        ${form && !dismissed && show.includes("actions") && html`<${Actions} form=${form} state=${state} act=${act} />`}
        ${show.includes("messages") && html`<${Log} notices=${notices} />`}
        ${!dismissed && show.includes("feedback") && welcome.receivers.length > 0 &&
        html`<${Feedback} receivers=${welcome.receivers} say=${say} />`}
        ${!dismissed && show.includes("leave") && html`<${Leave} say=${say} />`}
      </div>
    </div>
  </div>`;
}
