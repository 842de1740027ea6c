// @ts-check
/** What makes elements: htm over preact, without a build step. */
import { h } from "../../assets/vendor/preact.js";
import htm from "../../assets/vendor/htm.js";

export const html = htm.bind(h);
