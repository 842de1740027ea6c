// Rows by their keys, as the server tells their differences; see `_rows.py`.
// @ts-check

/** @typedef {Record<string, any>} Row */

/**
 * @param {Map<string, Row>} rows
 * @param {{set?: Record<string, Row>, gone?: string[], order?: string[]}} delta
 * @returns {Map<string, Row>}
 */
export function applied(rows, delta) {
  const found = new Map(rows);
  for (const key of delta.gone ?? []) found.delete(key);
  for (const [key, fields] of Object.entries(delta.set ?? {})) {
    const row = { ...found.get(key), ...fields };
    for (const name of Object.keys(fields)) if (fields[name] === null) delete row[name];
    found.set(key, row);
  }
  if (!delta.order) return found;
  const ordered = new Map();
  for (const key of delta.order) {
    const row = found.get(key);
    if (row) ordered.set(key, row);
  }
  return ordered;
}

/** @typedef {{ticks: number[], values: number[]}} Curve */

/**
 * @param {Record<string, Curve>} curves
 * @param {Record<string, {ticks: number[], values: number[], all?: boolean}>} news
 * @returns {Record<string, Curve>}
 */
export function continued(curves, news) {
  const found = { ...curves };
  for (const [name, more] of Object.entries(news)) {
    const old = more.all ? undefined : found[name];
    found[name] = old
      ? { ticks: old.ticks.concat(more.ticks), values: old.values.concat(more.values) }
      : { ticks: more.ticks, values: more.values };
  }
  return found;
}
