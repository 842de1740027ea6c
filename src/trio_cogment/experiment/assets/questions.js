// @ts-check
/** The questions of a page: a control for each kind, and what was answered. */
import { html } from "../../play/assets/html.js";

/**
 * @typedef {{
 *   name: string, ask: string, kind: string, options: string[], low: number | null, high: number | null,
 *   labels: string[], integer: boolean, required: boolean,
 * }} Question  as `experiment/server.py` has it
 */

/** @param {{question: Question}} props */
function Mark({ question }) {
  return question.required ? null : html` <small>(if you like)</small>`;
}

/** @param {{question: Question, type: string, values: string[], texts?: string[], name?: string}} props */
function Options({ question, type, values, texts = values, name = "options" }) {
  return html`<fieldset class="question">
    <legend>${question.ask}<${Mark} question=${question} /></legend>
    <div class=${name}>
      ${values.map(
        (value, k) => html`<label>
          <input type=${type} name=${question.name} value=${value} required=${type === "radio" && question.required} />
          <span>${texts[k]}</span>
        </label>`,
      )}
    </div>
    ${question.labels.length > 0 && html`<div class="ends"><span>${question.labels[0]}</span><span>${question.labels[1]}</span></div>`}
  </fieldset>`;
}

/** @param {{question: Question}} props */
function Field({ question }) {
  const { name, kind, low, high, required } = question;
  const id = `question-${name}`;
  return html`<div class="question">
    <label for=${id}>${question.ask}<${Mark} question=${question} /></label>
    ${kind === "long"
      ? html`<textarea id=${id} name=${name} rows="4" maxlength="10000" required=${required}></textarea>`
      : kind === "number"
        ? html`<input id=${id} name=${name} type="number" step=${question.integer ? 1 : "any"} min=${low} max=${high}
            required=${required} inputmode=${question.integer ? "numeric" : "decimal"} />`
        : html`<input id=${id} name=${name} type="text" maxlength="500" autocomplete="off" autocapitalize="none"
            required=${required} />`}
  </div>`;
}

/** @param {{question: Question}} props */
function One({ question }) {
  switch (question.kind) {
    case "choice":
      return html`<${Options} question=${question} type="radio" values=${question.options} />`;
    case "choices":
      return html`<${Options} question=${question} type="checkbox" values=${question.options} />`;
    case "yes_no":
      return html`<${Options} question=${question} type="radio" values=${["yes", "no"]} texts=${["Yes", "No"]} />`;
    case "scale": {
      const low = question.low ?? 0;
      const values = Array.from({ length: (question.high ?? 0) - low + 1 }, (_, k) => String(low + k));
      return html`<${Options} question=${question} type="radio" values=${values} name="scale" />`;
    }
    default:
      return html`<${Field} question=${question} />`;
  }
}

/** @param {{questions: Question[]}} props */
export function Questions({ questions }) {
  return questions.map((question) => html`<${One} key=${question.name} question=${question} />`);
}

/**
 * Return what was answered, by the names of the questions; what was not is null.
 * @param {Question[]} questions
 * @param {HTMLFormElement} form
 * @returns {Record<string, any>}
 */
export function answers(questions, form) {
  const data = new FormData(form);
  return Object.fromEntries(questions.map((question) => [question.name, answer(question, data)]));
}

/** @param {Question} question @param {FormData} data */
function answer(question, data) {
  if (question.kind === "choices") return data.getAll(question.name);
  const text = data.get(question.name);
  if (typeof text !== "string" || text === "") return null;
  if (question.kind === "yes_no") return text === "yes";
  return question.kind === "number" || question.kind === "scale" ? Number(text) : text;
}
