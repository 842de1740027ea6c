// @ts-check
/** The page of a participant: pages to read and to fill in, the waiting room, trials, and the end. */
import { render } from "../../assets/vendor/preact.js";
import { useEffect, useMemo, useReducer, useRef, useState } from "../../assets/vendor/preact-hooks.js";
import { Countdown } from "../../play/assets/countdown.js";
import { html } from "../../play/assets/html.js";
import { Seat } from "../../play/assets/seat.js";
import { NOTHING, reduce } from "../../play/assets/seen.js";
import { local, session } from "../../play/assets/storage.js";
import { Wire } from "../../play/assets/wire.js";
import { Questions, answers } from "./questions.js";

/** What a proxy has before the paths of the server. */
const BEFORE = location.pathname.replace(/(\/~[^/]*)?\/experiment\/[^/]*\/$/, "");
const TICKET = `trio-cogment experiment ${location.pathname}`;
/** Tells this tab from others of the same browser; it stays when the page is loaded again. */
const TAB = session.getItem(TICKET) ?? Math.random().toString(36).slice(2);
session.setItem(TICKET, TAB);
/** Time that is left is shown below this many seconds. */
const SHOWN_SECONDS = 120;

/** @typedef {(message: object) => void} Say */

/** @param {{markup: string}} props  HTML that the server has made of Markdown: there is none of anybody else's in it */
function Text({ markup }) {
  return html`<div class="text" dangerouslySetInnerHTML=${{ __html: markup }}></div>`;
}

/** @param {{state: any}} props */
function TimeLeft({ state }) {
  if (state.seconds === null || state.seconds > SHOWN_SECONDS) return null;
  return html`<p class="faint">Time left: <${Countdown} seconds=${state.seconds} since=${state.since} /></p>`;
}

/** @param {{state: any, say: Say, refused: string}} props */
function Sheet({ state, say, refused }) {
  const { page } = state;
  const form = useRef(/** @type {HTMLFormElement | null} */ (null));
  /** @param {boolean} agrees */
  const turn = (agrees) => {
    const given = form.current ? answers(page.questions, form.current) : {};
    say({ type: "turn", page: page.name, answers: given, agrees, at: Date.now() });
  };
  /** @param {Event} event */
  const submit = (event) => {
    event.preventDefault();
    turn(true);
  };
  return html`<form class="card" ref=${form} onSubmit=${submit} aria-label=${page.title || "Page"}>
    ${page.title && html`<h2>${page.title}</h2>`}
    <${Text} markup=${page.html} />
    <${Questions} questions=${page.questions} />
    ${page.failed > 0 && html`<p class="bad" role="alert">That is not right. Please read again, and answer once more.</p>`}
    ${refused && html`<p class="bad" role="alert">${refused}</p>`}
    <${TimeLeft} state=${state} />
    <div class="row">
      <button class="main">${page.kind === "consent" ? "I agree" : "Continue"}</button>
      ${page.kind === "consent" &&
      html`<button type="button" onClick=${() => turn(false)}>I do not agree</button>`}
    </div>
  </form>`;
}

/** @param {{seconds: number}} props @returns {boolean} whether so many seconds are over */
function useOver({ seconds }) {
  const [over, setOver] = useState(seconds <= 0);
  useEffect(() => {
    setOver(seconds <= 0);
    const timer = setTimeout(() => setOver(true), 1000 * seconds);
    return () => clearTimeout(timer);
  }, [seconds]);
  return over;
}

/** @param {{state: any, say: Say}} props */
function WaitingRoom({ state, say }) {
  const { waiting } = state;
  const mayGo = useOver({ seconds: waiting.way_out_in });
  const missing = Math.max(waiting.size - waiting.here, 0);
  return html`<div class="card">
    <h2>Waiting for others</h2>
    <p class="seats" role="img" aria-label=${`${Math.min(waiting.here, waiting.size)} of ${waiting.size} people are here`}>
      ${Array.from({ length: waiting.size }, (_, k) => html`<span class=${k < waiting.here ? "taken" : "free"}></span>`)}
    </p>
    <p aria-live="polite">${missing === 0 ? "Everybody is here." : `${missing} more ${missing === 1 ? "person is" : "people are"} needed.`}</p>
    <p>You wait for <${Countdown} seconds=${state.seconds} since=${state.since} /> at most. After that,
      ${waiting.shortage === "bots" ? " programs take the other places." : " it ends for you, and you are told how to go on."}</p>
    <p class="faint">Please keep this page open: who closes it is not waited for.</p>
    ${mayGo && html`<button onClick=${() => say({ type: "way out" })}>I do not want to wait any longer</button>`}
  </div>`;
}

const MEMBER_STATES = /** @type {Record<string, string>} */ ({
  here: "here",
  reading: "still reading",
  away: "away",
  bot: "a program plays",
  gone: "has left",
});

/** @param {{group: any[], since: number, roles: boolean}} props */
function Members({ group, since, roles }) {
  if (group.length < 2) return null;
  return html`<ul class="members" aria-label="Your group" aria-live="polite">
    ${group.map(
      (member) => html`<li class=${member.state === "away" ? "tag warn" : "tag"}>
        ${member.you ? "You" : `Person ${member.place}`}${roles && ` (${member.role})`}: ${MEMBER_STATES[member.state]}
        ${typeof member.seconds === "number" && html`, back within <${Countdown} seconds=${member.seconds} since=${since} />`}
      </li>`,
    )}
  </ul>`;
}

/** @type {string[]} */
const NOTHING_SHOWN = [];

/**
 * The seat of a trial, over a connection of its own.
 * @param {{seat: any, members: any[], hidden: boolean}} props
 */
function Game({ seat, members, hidden }) {
  const [seen, dispatch] = useReducer(reduce, NOTHING);
  const base = BEFORE + seat.link;
  const wire = useMemo(
    () =>
      new Wire(
        dispatch,
        (state, reason) => dispatch({ type: "connection", state, reason }),
        () => ({ type: "hello", ticket: "", automated: false }),
        new URL(base, location.href).href,
      ),
    [base],
  );
  useEffect(() => () => wire.end(), [wire]);
  const say = useMemo(() => (/** @type {object} */ message) => wire.say(message), [wire]);
  return html`<div>
    ${seat.html && html`<div class="card"><${Text} markup=${seat.html} /></div>`}
    ${seen.connection === "lost" && !seen.dismissed && html`<p class="bad" role="alert">connection lost, trying again</p>`}
    ${seen.welcome
      ? html`<${Seat} ...${seen} say=${say} show=${hidden ? NOTHING_SHOWN : seat.show} base=${base} members=${members} />`
      : html`<p role="status">The game is about to begin …</p>`}
  </div>`;
}

/**
 * A trial, and how it has ended: that stays for a while, since the server is a step ahead. The next trial, which may have
 * begun, is there meanwhile, hidden, so that it does not wait for somebody who seems to be away.
 * @param {{seat: any, members: any[], over: boolean, hidden: boolean, goOn: () => void}} props
 */
function Trial({ seat, members, over, hidden, goOn }) {
  const since = useMemo(() => performance.now(), [over]);
  useEffect(() => {
    if (!over) return undefined;
    const timer = setTimeout(goOn, 1000 * seat.end_seconds);
    return () => clearTimeout(timer);
  }, [over]);
  return html`<div hidden=${hidden}>
    ${over && html`<p class="row"><button class="main" onClick=${goOn}>Go on</button>
      <span class="faint">goes on by itself in <${Countdown} seconds=${seat.end_seconds} since=${since} /></span></p>`}
    <${Game} seat=${seat} members=${members} hidden=${hidden} />
  </div>`;
}

/** @param {{end: any}} props */
function End({ end }) {
  return html`<div class="card" role="status">
    <${Text} markup=${end.html} />
    ${end.code && html`<p>Your code: <span class="code">${end.code}</span></p>`}
    ${end.redirect && html`<p><a class="button main" href=${end.redirect} rel="noreferrer">Back to where you came from</a></p>`}
    ${!end.redirect && html`<p class="faint">You can close this page.</p>`}
  </div>`;
}

/** @param {{state: any, enter: (code: string) => void}} props */
function Code({ state, enter }) {
  const [code, setCode] = useState("");
  /** @param {Event} event */
  const submit = (event) => {
    event.preventDefault();
    enter(code);
  };
  return html`<form class="card" onSubmit=${submit}>
    <label class="block">Your code
      <input type="text" required maxlength="128" autocomplete="off" autocapitalize="none" value=${code}
        onInput=${(/** @type {any} */ event) => setCode(event.target.value)} />
    </label>
    ${state.wrong && html`<p class="bad" role="alert">There is no such code.</p>`}
    <button class="main">Continue</button>
  </form>`;
}

/** @param {{say: Say, narrow: boolean}} props */
function Leave({ say, narrow }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  return html`<footer class=${narrow ? "narrow" : ""}>
    <button type="button" onClick=${() => dialog.current?.showModal()}>Leave the study</button>
    <dialog ref=${dialog} aria-labelledby="leave">
      <h2 id="leave">Leave the study?</h2>
      <p>You cannot come back.</p>
      <form method="dialog" class="row">
        <button>Stay</button>
        <button class="danger" onClick=${() => say({ type: "leave" })}>Leave</button>
      </form>
    </dialog>
  </footer>`;
}

/**
 * @typedef {{
 *   connection: string, reason: string, state: any, notes: string[], dismissed: string, refused: string, ended: any,
 * }} Shown
 */

/** @param {Shown} shown @param {any} message @returns {Shown} */
function show(shown, message) {
  switch (message.type) {
    case "connection":
      return { ...shown, connection: message.state, reason: message.reason };
    case "experiment": {
      const notes = message.welcome?.notes ?? shown.notes;
      // Who is out sees it at once. A trial that is played again has not ended.
      const before = shown.state?.step === "playing" ? shown.state : null;
      const isNew = before?.seat?.end_seconds > 0 && before.seat.trial !== message.seat?.trial;
      const ended = message.step === "out" ? null : isNew && message.trials_done >= before.seat.number ? before : shown.ended;
      return { ...shown, state: { ...message, since: performance.now() }, notes, refused: "", ended };
    }
    case "go on":
      return { ...shown, ended: null };
    case "note":
      return { ...shown, notes: [...shown.notes, message.text] };
    case "dismissed":
      return { ...shown, dismissed: message.reason };
    case "refused":
      return { ...shown, refused: message.reason };
    default:
      return shown;
  }
}

/** @param {{shown: Shown, say: Say, enter: (code: string) => void, goOn: () => void}} props */
function Content({ shown, say, enter, goOn }) {
  const { state, ended } = shown;
  if (shown.connection === "refused") {
    return html`<div class="card note bad" role="alert"><h2>Not possible</h2><p class="faint">${shown.reason}</p></div>`;
  }
  if (shown.dismissed === "taken over") {
    return html`<div class="card note" role="status"><h2>You go on in another window</h2>
      <p>This study was opened again. Only the newest window has your place.</p>
      <button class="main" onClick=${() => location.reload()}>Go on here</button></div>`;
  }
  if (shown.dismissed) {
    return html`<div class="card note" role="status"><h2>Not possible</h2><p>Too many wrong codes. Load the page again.</p></div>`;
  }
  if (!state) {
    return shown.refused
      ? html`<div class="card note bad" role="alert"><h2>Not possible</h2><p>${shown.refused}</p></div>`
      : html`<p role="status">Connecting …</p>`;
  }
  const trials = [ended, state].filter((each) => each?.step === "playing" && each.seat);
  if (trials.length > 0) {
    return trials.map((each, index) => html`<${Trial} key=${each.seat.trial} seat=${each.seat} members=${each.group ?? []}
      over=${each === ended} hidden=${index > 0} goOn=${goOn} />`);
  }
  switch (state.step) {
    case "code":
      return html`<${Code} state=${state} enter=${enter} />`;
    case "waiting":
      return html`<${WaitingRoom} state=${state} say=${say} />`;
    case "ready":
      return html`<div class="card"><p role="status">${state.interrupted
        ? "The game will be back in a moment, where it was: it waits until everybody is here again."
        : "Please wait until the others are ready."}</p></div>`;
    case "playing":
      return html`<div class="card"><p role="status">The game is about to begin …</p></div>`;
    case "out":
      return html`<${End} end=${state.end} />`;
    default:
      return html`<${Sheet} key=${state.page.name} state=${state} say=${say} refused=${shown.refused} />`;
  }
}

function App() {
  const [shown, dispatch] = useReducer(show, {
    connection: "opening",
    reason: "",
    state: null,
    notes: [],
    dismissed: "",
    refused: "",
    ended: null,
  });
  const wire = useMemo(() => {
    let wasLetIn = false;
    /** @param {string} code */
    const entering = (code) => ({
      type: "enter",
      ticket: local.getItem(TICKET) ?? "",
      parameters: Object.fromEntries(new URLSearchParams(location.search)),
      code,
      tab: TAB,
      again: wasLetIn,
      width: innerWidth,
      height: innerHeight,
    });
    const made = new Wire(
      (message) => {
        // Not that of the session: a second tab is the same person.
        if (message.welcome?.ticket) local.setItem(TICKET, message.welcome.ticket);
        wasLetIn ||= Boolean(message.welcome);
        dispatch(message);
      },
      (state, reason) => dispatch({ type: "connection", state, reason }),
      () => entering(""),
    );
    return { made, enter: (/** @type {string} */ code) => made.say(entering(code)) };
  }, []);
  const say = useMemo(() => (/** @type {object} */ message) => wire.made.say(message), [wire]);
  const goOn = useMemo(
    () => () => {
      say({ type: "go on", at: Date.now() });
      dispatch({ type: "go on" });
    },
    [say],
  );
  // What is shown: the server may be a step ahead.
  const state = shown.ended ?? shown.state;
  const playing = state?.step === "playing" && state.seat;
  const where = state && (state.page?.name ?? state.seat?.trial ?? state.step);
  const main = useRef(/** @type {HTMLElement | null} */ (null));
  const first = useRef(true);
  useEffect(() => {
    if (!where) return;
    document.title = `${playing ? "● " : ""}${state.title}`;
    // Who reads by ear hears the new page; the first one begins at the top by itself.
    if (!first.current) main.current?.focus();
    first.current = false;
  }, [where]);
  const live = state && !["out", "code"].includes(state.step) && !shown.dismissed && shown.connection !== "refused";
  return html`
    <header class="bar">
      <h1>${state?.title ?? "Study"}</h1>
      <span class="row end">
        ${state?.page && html`<span class="tag">page ${state.page.number} of ${state.page.of}</span>`}
        ${playing && html`<span class="tag">game ${state.seat.number} of ${state.seat.of}</span>`}
        ${shown.connection === "lost" && !shown.dismissed &&
        html`<span class="tag bad" role="alert">connection lost, trying again</span>`}
      </span>
    </header>
    <main class=${playing ? "" : "narrow"} id="content" tabindex="-1" ref=${main}>
      ${shown.notes.length > 0 && html`<div class="card note notes" role="status" aria-label="From those who run the study">
        ${shown.notes.map((text) => html`<p class="pre">${text}</p>`)}</div>`}
      ${live && state.early && html`<p class="card note" role="status">The game has ended early.</p>`}
      ${live && state.group && state.step !== "finishing" && (!playing || state.seat.show.includes("members")) &&
      html`<${Members} group=${state.group} since=${state.since} roles=${state.roles} />`}
      <${Content} shown=${shown} say=${say} enter=${wire.enter} goOn=${goOn} />
    </main>
    ${live && html`<${Leave} say=${say} narrow=${!playing} />`}`;
}

const root = /** @type {HTMLElement} */ (document.getElementById("app"));
root.textContent = "";
render(html`<${App} />`, root);
