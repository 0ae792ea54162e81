// @ts-check
// The live page as one offline file, put together here from its own sources and a snapshot.

const FIRST = '<meta charset="utf-8">';
const LAST = "</body>";
const PAIR = /^import .* from "\.\/([\w.-]+)";$/gm;

/** @param {string} url */
async function text(url) {
  const answer = await fetch(url);
  if (!answer.ok) throw new TypeError(`${url} answered ${answer.status}`);
  return answer.text();
}

/** A module and all it imports, each once, in the order they run. @param {string} base @param {string} name @param {Map<string, string>} seen */
async function modules(base, name, seen) {
  if (seen.has(name)) return;
  seen.set(name, "");
  const source = await text(base + name);
  for (const [, other] of source.matchAll(PAIR)) await modules(base, other, seen);
  seen.delete(name);
  seen.set(name, source.replaceAll(PAIR, "").replaceAll(/^export /gm, ""));
}

/** @param {any} data the answer of /snapshot */
export async function pageFile(data) {
  const nonce = [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, "0")).join("");
  let page = await text("/");
  const csp = `default-src 'none'; script-src 'nonce-${nonce}'; style-src 'nonce-${nonce}'; img-src data: blob:`;
  page = page.replace(FIRST, () => `${FIRST}<meta http-equiv="Content-Security-Policy" content="${csp}">`);
  for (const [tag, url] of [...page.matchAll(/<link rel="stylesheet" href="([^"]+)">/g)]) {
    const style = await text(url);
    page = page.replace(tag, () => `<style nonce="${nonce}">${style}</style>`);
  }
  for (const [tag, url] of [...page.matchAll(/<script src="([^"]+)"><\/script>/g)]) {
    const script = await text(url);
    page = page.replace(tag, () => `<script nonce="${nonce}">${script}</` + "script>");
  }
  for (const [tag, base, name] of [...page.matchAll(/<script type="module" src="([^"]*\/)([^"/]+)"><\/script>/g)]) {
    const seen = new Map();
    await modules(base, name, seen);
    page = page.replace(tag, () => `<script type="module" nonce="${nonce}">${[...seen.values()].join("\n")}</` + "script>");
  }
  const json = JSON.stringify(data).replace(/[<>&\u2028\u2029]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
  const end = page.lastIndexOf(LAST);
  return `${page.slice(0, end)}<script type="application/json" id="flodl-data">${json}</` + "script>" + page.slice(end);
}
