// @ts-check
// Data that a saved page carries in itself.

/** @returns {Promise<any>} null on a live page */
export async function embedded() {
  const box = document.getElementById("flodl-data");
  if (!box) return null;
  const text = box.textContent ?? "";
  if (box.dataset.encoding !== "gzip") return JSON.parse(text);
  const packed = Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}
