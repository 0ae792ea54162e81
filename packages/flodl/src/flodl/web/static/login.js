// @ts-check
// The way in when the server asks for a token.

import { byId, setText, show } from "./dom.js";

export class Login {
  /** @param {() => void} done */
  constructor(done) {
    this.done = done;
    byId("login-form").addEventListener("submit", (/** @type {Event} */ event) => {
      event.preventDefault();
      this.submit(byId("login-token").value);
    });
  }

  /** A token in the fragment is used once and taken out of the address. @returns {Promise<boolean>} may the page go on? */
  async fromAddress() {
    const fields = new URLSearchParams(location.hash.slice(1));
    const token = fields.get("token");
    if (token === null) return true;
    fields.delete("token");
    const rest = [...fields].map(([k, v]) => `${k}=${v}`).join("&");
    history.replaceState(null, "", location.pathname + (rest ? `#${rest}` : ""));
    const refused = await this.send(token);
    if (refused) this.show(refused);
    return refused === "";
  }

  /** @param {string} token @returns {Promise<string>} what is wrong, or nothing */
  async send(token) {
    const answer = await fetch("/login", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ token }) });
    if (answer.ok) return "";
    return answer.status === 429 ? "Too many attempts. Wait a minute and try again." : "This token was not accepted. Copy it again from the console of the run.";
  }

  /** @param {string} token */
  async submit(token) {
    const refused = await this.send(token);
    if (refused) this.show(refused);
    else this.done();
  }

  /** @param {string} message */
  show(message) {
    show(byId("login"), true);
    show(byId("shell"), false);
    setText(byId("login-error"), message);
    byId("login-token").focus();
  }

  hide() {
    show(byId("login"), false);
    show(byId("shell"), true);
  }
}
