// @ts-check
/** What a browser keeps for a page; where it may keep nothing (storage is blocked), the page remembers by itself. */

/** @typedef {{getItem(name: string): string | null, setItem(name: string, value: string): void, removeItem(name: string): void}} Kept */

/** @returns {Kept} gone when the page is loaded again */
function memory() {
  const kept = new Map();
  return {
    getItem: (name) => kept.get(name) ?? null,
    setItem: (name, value) => void kept.set(name, value),
    removeItem: (name) => void kept.delete(name),
  };
}

/** @param {() => Storage} find  it throws where storage is blocked @returns {Kept} */
function usable(find) {
  try {
    const found = find();
    // A browser may have a storage with no room in it.
    found.setItem("trio-cogment", "");
    found.removeItem("trio-cogment");
    return found;
  } catch {
    return memory();
  }
}

/** Of this tab. */
export const session = usable(() => sessionStorage);
/** Of all tabs of this browser. */
export const local = usable(() => localStorage);
