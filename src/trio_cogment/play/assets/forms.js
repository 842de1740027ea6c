// @ts-check
/** How actions are made: the controls for each kind of form of `play/forms.py`. */
import { useState } from "../../assets/vendor/preact-hooks.js";
import { html } from "./html.js";
import { JsonText } from "./wire.js";

/**
 * @typedef {{value: any, label: string, keys: string[], allowed?: boolean}} Option
 * @typedef {{kind: string, [field: string]: any}} Form
 */

/** More characters that a text may have are not listed. */
const MOST_HINTED = 40;
const KEY_NAMES = /** @type {Record<string, string>} */ ({
  ArrowLeft: "←",
  ArrowRight: "→",
  ArrowUp: "↑",
  ArrowDown: "↓",
  Space: "space",
});

/**
 * Return the form in which a person chooses once and is done, and what makes an action of the choice; or null.
 * @param {Form} form
 * @returns {{options: Option[], wrap: (value: any) => any} | null}
 */
export function direct(form) {
  if (form.kind === "choice") return { options: form.options, wrap: (value) => value };
  if (form.kind === "object" && form.fields.length === 1) {
    const [field] = form.fields;
    const inner = direct(field.form);
    if (inner) return { options: inner.options, wrap: (value) => ({ [field.name]: inner.wrap(value) }) };
  }
  return null;
}

/**
 * Return what a form holds before anybody has touched it.
 * @param {Form} form
 * @returns {any}
 */
export function initial(form) {
  switch (form.kind) {
    case "choice":
      return (form.options.find((/** @type {Option} */ option) => option.allowed !== false) ?? form.options[0])?.value;
    case "number":
      return form.initial;
    case "switch":
      return false;
    case "switches":
      return form.fixed.map((/** @type {number | null} */ value) => value ?? 0);
    case "sliders":
    case "choices":
    case "list":
      return form.forms.map(initial);
    case "object":
      return Object.fromEntries(
        form.fields
          .filter((/** @type {any} */ field) => !field.optional)
          .map((/** @type {any} */ field) => [field.name, initial(field.form)]),
      );
    case "sequence":
      return [];
    case "one_of":
      return [0, initial(form.forms[0])];
    case "json":
      return "";
    default:
      return "";
  }
}

/**
 * Return the answer that the server gets for what a form holds.
 * @param {Form} form
 * @param {any} value
 * @returns {any}
 */
export function answer(form, value) {
  switch (form.kind) {
    case "sliders":
    case "choices":
      return nested(value.map((/** @type {any} */ each, /** @type {number} */ k) => answer(form.forms[k], each)), form.shape);
    case "switches":
      return nested(value, form.shape);
    case "list":
      return form.forms.map((/** @type {Form} */ each, /** @type {number} */ k) => answer(each, value[k]));
    case "object":
      return Object.fromEntries(
        form.fields
          .filter((/** @type {any} */ field) => field.name in value)
          .map((/** @type {any} */ field) => [field.name, answer(field.form, value[field.name])]),
      );
    case "sequence":
      return value.map((/** @type {any} */ each) => answer(form.form, each));
    case "one_of":
      return [value[0], answer(form.forms[value[0]], value[1])];
    case "json":
      return new JsonText(value);
    default:
      return value;
  }
}

/**
 * Return a flat list as nested ones of a shape.
 * @param {any[]} flat
 * @param {number[]} shape
 * @returns {any}
 */
export function nested(flat, shape) {
  if (shape.length === 0) return flat[0];
  if (shape.length === 1) return flat;
  const size = flat.length / shape[0];
  return Array.from({ length: shape[0] }, (_, k) => nested(flat.slice(k * size, (k + 1) * size), shape.slice(1)));
}

/** @param {{options: Option[], enabled: boolean, held: any, press: (value: any) => void, release: () => void}} props */
export function Choices({ options, enabled, held, press, release }) {
  return html`<div class="choices" role="group" aria-label="Actions">
    ${options.map(
      (option) => html`<button
        type="button"
        class=${option.value === held ? "choice held" : "choice"}
        disabled=${option.allowed === false}
        aria-disabled=${!enabled}
        onPointerDown=${(/** @type {PointerEvent} */ event) => event.button === 0 && press(option.value)}
        onPointerUp=${release}
        onPointerLeave=${release}
        onPointerCancel=${release}
        onClick=${(/** @type {MouseEvent} */ event) => event.detail === 0 && (press(option.value), release())}
        onContextMenu=${(/** @type {Event} */ event) => event.preventDefault()}
      >
        <span>${option.label}</span>
        ${option.keys.length > 0 && html`<kbd>${KEY_NAMES[option.keys[0]] ?? option.keys[0]}</kbd>`}
      </button>`,
    )}
  </div>`;
}

/**
 * @typedef {{form: Form, value: any, change: (value: any) => void, label: string}} ControlProps
 */

/** @param {ControlProps} props */
function NumberControl({ form, value, change, label }) {
  const { low, high, integer } = form;
  const step = integer ? 1 : "any";
  /** @param {any} event */
  const read = (event) => {
    const text = event.target.value;
    const number = Number(text);
    // What would be rounded goes as the text that it is.
    if (text !== "") change(integer && Number.isInteger(number) && !Number.isSafeInteger(number) ? text : number);
  };
  const slider = low !== null && high !== null && (!integer || high - low <= 1000);
  return html`<label class="block">${label}
    <span class="number-control">
      ${slider &&
      html`<input type="range" min=${low} max=${high} step=${integer ? 1 : (high - low) / 200} value=${value}
        onInput=${read} aria-label=${`${label}, slider`} />`}
      <input type="number" min=${low} max=${high} step=${step} value=${value} onInput=${read} required />
    </span>
  </label>`;
}

/** @param {ControlProps} props */
function ChoiceControl({ form, value, change, label }) {
  const pick = (/** @type {any} */ event) => change(form.options[event.target.selectedIndex].value);
  return html`<label class="block">${label}
    <select onChange=${pick}>
      ${form.options.map(
        (/** @type {Option} */ option) =>
          html`<option selected=${option.value === value} disabled=${option.allowed === false}>${option.label}</option>`,
      )}
    </select>
  </label>`;
}

/** @param {ControlProps} props */
function TextControl({ form, value, change, label }) {
  const hint = form.bytes ? "base64" : (form.characters?.length ?? 0) <= MOST_HINTED ? form.characters : "";
  return html`<label class="block">${label} ${hint && html`<small>(${hint})</small>`}
    <input type="text" value=${value} minlength=${form.least} maxlength=${form.most} autocomplete="off"
      onInput=${(/** @type {any} */ event) => change(event.target.value)} />
  </label>`;
}

/** @param {ControlProps} props */
function SwitchControl({ value, change, label }) {
  return html`<label class="block row"><input type="checkbox" checked=${value}
    onChange=${(/** @type {any} */ event) => change(event.target.checked)} /> ${label}</label>`;
}

/** @param {ControlProps} props */
function SwitchesControl({ form, value, change, label }) {
  return html`<fieldset><legend>${label}</legend><div class="row">
    ${value.map(
      (/** @type {number} */ each, /** @type {number} */ k) => html`<label>
        <input type="checkbox" checked=${each === 1} disabled=${form.fixed[k] !== null}
          onChange=${(/** @type {any} */ event) => change(value.with(k, event.target.checked ? 1 : 0))} /> ${k}
      </label>`,
    )}
  </div></fieldset>`;
}

/** @param {ControlProps} props */
function SeveralControl({ form, value, change, label }) {
  return html`<fieldset><legend>${label}</legend>
    ${form.forms.map(
      (/** @type {Form} */ each, /** @type {number} */ k) =>
        html`<${Control} form=${each} value=${value[k]} label=${String(k)}
          change=${(/** @type {any} */ inner) => change(value.with(k, inner))} />`,
    )}
  </fieldset>`;
}

/** @param {ControlProps} props */
function ObjectControl({ form, value, change, label }) {
  /** @param {any} field @param {boolean} wanted */
  const include = (field, wanted) => {
    const rest = { ...value };
    delete rest[field.name];
    if (wanted) {
      // Of alternatives there is one.
      for (const other of form.fields) if (field.alternatives && other.alternatives === field.alternatives) delete rest[other.name];
      rest[field.name] = initial(field.form);
    }
    change(rest);
  };
  return html`<fieldset>${label && html`<legend>${label}</legend>`}
    ${form.fields.map((/** @type {any} */ field) => {
      const there = field.name in value;
      return html`<div class="field">
        ${field.optional &&
        html`<label class="row"><input type="checkbox" checked=${there}
          onChange=${(/** @type {any} */ event) => include(field, event.target.checked)} /> with ${field.name}</label>`}
        ${there &&
        html`<${Control} form=${field.form} value=${value[field.name]} label=${field.name}
          change=${(/** @type {any} */ inner) => change({ ...value, [field.name]: inner })} />`}
      </div>`;
    })}
  </fieldset>`;
}

/** @param {ControlProps} props */
function SequenceControl({ form, value, change, label }) {
  return html`<fieldset><legend>${label}</legend>
    ${value.map(
      (/** @type {any} */ each, /** @type {number} */ k) =>
        html`<${Control} form=${form.form} value=${each} label=${String(k)}
          change=${(/** @type {any} */ inner) => change(value.with(k, inner))} />`,
    )}
    <div class="row">
      <button type="button" onClick=${() => change([...value, initial(form.form)])}>Add</button>
      <button type="button" disabled=${value.length === 0} onClick=${() => change(value.slice(0, -1))}>Remove</button>
    </div>
  </fieldset>`;
}

/** @param {ControlProps} props */
function OneOfControl({ form, value, change, label }) {
  const pick = (/** @type {any} */ event) => {
    const position = event.target.selectedIndex;
    change([position, initial(form.forms[position])]);
  };
  return html`<fieldset><legend>${label}</legend>
    <label class="block">kind <select onChange=${pick}>
      ${form.forms.map((/** @type {Form} */ _, /** @type {number} */ k) => html`<option selected=${k === value[0]}>${k}</option>`)}
    </select></label>
    <${Control} form=${form.forms[value[0]]} value=${value[1]} label="value"
      change=${(/** @type {any} */ inner) => change([value[0], inner])} />
  </fieldset>`;
}

/** @param {ControlProps} props */
function JsonControl({ form, value, change, label }) {
  return html`<label class="block">${label} <small>JSON${form.about && `, ${form.about}`}</small>
    <textarea rows="4" value=${value} onInput=${(/** @type {any} */ event) => change(event.target.value)}></textarea>
  </label>`;
}

const CONTROLS = /** @type {Record<string, (props: ControlProps) => any>} */ ({
  number: NumberControl,
  choice: ChoiceControl,
  text: TextControl,
  switch: SwitchControl,
  switches: SwitchesControl,
  sliders: SeveralControl,
  choices: SeveralControl,
  list: SeveralControl,
  object: ObjectControl,
  sequence: SequenceControl,
  one_of: OneOfControl,
});

/** @param {ControlProps} props */
function Control(props) {
  return html`<${CONTROLS[props.form.kind] ?? JsonControl} ...${props} />`;
}

/** @param {{form: Form, enabled: boolean, send: (action: any) => void}} props */
export function ActionForm({ form, enabled, send }) {
  const [value, change] = useState(() => initial(form));
  const [wrong, setWrong] = useState("");
  /** @param {Event} event */
  const submit = (event) => {
    event.preventDefault();
    try {
      send(answer(form, value));
      setWrong("");
    } catch {
      setWrong("This is not JSON.");
    }
  };
  return html`<form onSubmit=${submit}>
    <${Control} form=${form} value=${value} change=${change} label=${form.kind === "object" ? "" : "Action"} />
    ${wrong && html`<p class="bad" role="alert">${wrong}</p>`}
    <button class="main" disabled=${!enabled}>Send</button>
  </form>`;
}
