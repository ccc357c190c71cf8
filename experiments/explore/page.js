"use strict";

/* Text from models and corpora is set as text, never as HTML. */

const $ = (id) => document.getElementById(id);
const SHOWN = 24; // words of a list before "show more"
const MORE = 2000; // that are shown then
const SLICE = 256; // beginnings that are followed by one request
let runs = [];
const cards = new Map(); // run number -> Card

function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name === "className" ? "class" : name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/* Numbers and sentences about lists */

const count = (n) => n.toLocaleString("en");

function percent(p) {
  const value = 100 * p;
  if (value === 0 || value === 100) return `${value}%`;
  if (value < 0.1) return "<0.1%";
  if (value > 99.9 && value < 100) return ">99.9%";
  return `${value.toFixed(value < 10 || value > 99 ? 1 : 0)}%`;
}

/** A score as its run means it: α-ReLU's are no probabilities and may exceed one. */
function scoreText(score, run) {
  if (run.sums_to_one) return percent(score);
  return score > 0 && score < 0.005 ? "<0.01" : score.toFixed(2);
}

function wordCount(n) { return n === 1 ? "1 word" : `${count(n)} words`; }
function beginningCount(n) { return n === 1 ? "1 beginning" : `${count(n)} beginnings`; }

/** One sentence about a list, and whether it is a certainty. */
function sentenceAbout(list, run, letters) {
  const n = list.count;
  const begin = letters ? ` begin${n === 1 ? "s" : ""} with “${letters}”` : "";
  if (!run.sparse) {
    if (!n) return [`No word that the model can spell begins with “${letters}”.`, false];
    const held = letters ? "" : ` They hold ${percent(1 - list.others_share)} of the probability.`;
    const most = n === 1 ? "The most probable word" : `The ${n} most probable words`;
    return [`${most}${letters ? ` that${begin}` : ""} and ${count(list.others)} others: softmax excludes nothing.${held}`, false];
  }
  const relu = run.sums_to_one || letters ? "" : ` Scores of α-ReLU are no probabilities: those of the pieces sum to ${list.total.toFixed(2)} here.`;
  if (!n && !list.beginnings) {
    return [letters ? `No possible word begins with “${letters}”. You can write it regardless.` : "The model holds every word impossible here.", false];
  }
  if (letters) {
    const all = [n && wordCount(n), list.beginnings && beginningCount(list.beginnings)].filter(Boolean).join(" and ");
    return [`${all} begin${n + list.beginnings === 1 ? "s" : ""} with “${letters}” and no other is possible.`, true];
  }
  return [andNoOther(n, list.beginnings) + relu, true];
}

/** "These 14 words, 3 beginnings of longer words, and no other." */
function andNoOther(n, beginnings) {
  if (beginnings) return `${n ? `${n === 1 ? "This word" : `These ${count(n)} words`}, ` : ""}${beginningCount(beginnings)} of longer words, and no other.`;
  return n === 1 ? "This one and no other." : `These ${count(n)} and no other.`;
}

function wholeOf(run, opened) { return opened ? "this" : run.sums_to_one ? "the probability" : "all scores"; }

/** How much the parts of a list hold that are no words. */
function sharesOf(found, run, opened = false) {
  const whole = wholeOf(run, opened);
  const parts = [];
  if (found.beginnings) parts.push(` The ${found.beginnings === 1 ? "beginning holds" : "beginnings hold"} ${percent(found.open_share)} of ${whole}.`);
  if (found.lost_share > 0) parts.push(` With ${percent(found.lost_share)} the sentence would end within a word.`);
  if (!found.exact) parts.push(" Beginnings may hold other spellings of these words, too: each word has at least what is said.");
  return parts.join("");
}

function wordLabel(word) {
  if (word.name === null) return el("bdi", { className: "special" }, "end of the sentence");
  if (word.unknown) return el("bdi", { className: "special" }, "a word outside the vocabulary");
  if (word.beginning) return el("bdi", { className: "beginning" }, `${word.text}…`);
  return el("bdi", {}, word.text);
}

/* Requests */

class Requests {
  /** One at a time: a new one ends the one before. Gives null if it was ended. */
  async post(name, body) {
    this.abort?.abort();
    const abort = (this.abort = new AbortController());
    try {
      const answer = await fetch(`/api/${name}`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(body),
        signal: abort.signal,
      });
      const value = await answer.json();
      if (abort.signal.aborted) return null;
      if (!answer.ok) throw Object.assign(new Error(value.error), { status: answer.status });
      return value;
    } catch (error) {
      if (abort.signal.aborted) return null;
      throw error instanceof TypeError ? new Error("the server does not answer: was it ended?") : error;
    }
  }
}

function fail(error) {
  $("failure").textContent = error ? error.message : "";
  $("failure").hidden = !error;
}

/* A system's translation */

class Card {
  constructor(run) {
    this.run = run;
    this.requests = new Requests();
    this.listRequests = new Requests();
    this.open = null; // place of the word whose list is open
    this.body = el("div", { className: "content" });
    this.badge = el("span", { className: "badge", role: "status", hidden: true });
    this.further = button("Search on", () => this.prove(), `Search on for the best translation by ${run.label}`);
    this.further.hidden = true;
    this.element = el("article", { className: "card", "aria-label": run.label },
      el("header", {}, el("h2", {}, run.label), el("small", {}, run.name),
        run.note ? el("small", { className: "half" }, run.note) : null, this.badge, this.further), this.body);
  }

  async translate(source, names = [], typed = "", end = false, focus = null) {
    this.source = source;
    this.asked = { run: this.run.run, source, words: names, typed, end };
    await this.ask(this.asked, focus);
  }

  /** Searches on until the translation is proved to be the best, or for a while. */
  async prove() {
    this.further.textContent = "Searching…";
    await this.ask({ ...this.asked, prove: true }, null);
  }

  async ask(body, focus) {
    this.body.classList.add("busy");
    try {
      const answer = await this.requests.post("translate", body);
      if (answer) this.show(answer, focus);
    } catch (error) {
      this.answer = null;
      this.badge.hidden = this.further.hidden = true;
      this.body.replaceChildren(el("p", { className: "warning", role: "alert" }, error.message));
    } finally {
      this.body.classList.remove("busy");
    }
  }

  show(answer, focus) {
    this.answer = answer;
    this.open = null;
    this.places = [...answer.words, answer.end];
    this.sourceWords = answer.source.map((word) =>
      el("span", { className: word.unknown ? "unknown" : null, title: word.unknown ? "outside the model’s vocabulary" : null }, word.text));
    this.buttons = this.places.map((word, place) => this.button(word, place));
    this.svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    this.svg.setAttribute("aria-hidden", "true");
    this.lines = el("div", { className: "lines" }, this.svg,
      el("p", { className: "source-words", dir: "auto", "aria-label": "Source" }, ...this.sourceWords.flatMap((w) => [w, " "])),
      el("div", { className: "target-words", dir: "auto", role: "toolbar", "aria-label": `Translation by ${this.run.label}` }, ...this.joined()));
    this.panel = el("div");
    this.body.replaceChildren(this.lines, this.panel, this.notes(), this.plain());
    this.lines.addEventListener("pointerleave", () => this.attend(this.open));
    this.certify();
    this.rove(focus ?? 0);
    if (focus !== null) this.buttons[Math.min(focus, this.buttons.length - 1)].focus();
  }

  /** Neighbours that were the only possibility share a border, as in S2S Figure 2. */
  joined() {
    const parts = [];
    this.places.forEach((word, place) => {
      if (!word.only) parts.push(this.buttons[place]);
      else if (place && this.places[place - 1].only) parts.at(-1).append(this.buttons[place]);
      else parts.push(el("div", { className: "run" }, this.buttons[place]));
    });
    return parts;
  }

  button(word, place) {
    const isEnd = word.name === null;
    const many = `${count(word.possible)}${word.beginnings ? "+" : ""}`;
    const small = word.impossible ? scoreText(0, this.run) : word.only ? "only" : `${scoreText(word.score, this.run)} · 1 of ${many}`;
    const said = word.impossible ? "impossible for the model" : word.only ? "the only possibility" :
      `${scoreText(word.score, this.run)}, one of ${count(word.possible)}${word.beginnings ? ` and ${beginningCount(word.beginnings)} of longer words` : ""} possible`;
    const name = isEnd ? "end of the sentence" : word.text;
    const classes = ["word", word.given && "given", word.impossible && "impossible", isEnd && "end"];
    return el("button", {
      type: "button", className: classes.filter(Boolean).join(" "), "aria-expanded": "false", tabIndex: -1,
      "aria-label": `${name}: ${said}${this.attentionText(place)}`,
      onclick: () => (this.open === place ? this.close() : this.list(place)),
      onkeydown: (event) => this.keys(event, place),
      onfocus: () => { this.rove(place); this.attend(place); },
      onblur: () => this.attend(this.open),
      onpointerenter: () => this.attend(place),
    }, el("b", {}, isEnd ? "■" : word.text), el("small", {}, small));
  }

  attentionText(place) {
    const weights = this.answer.attention?.[place];
    if (!weights) return "";
    const best = weights.map((w, i) => [w, i]).filter(([w]) => w > 0.1).sort((a, b) => b[0] - a[0]).slice(0, 3);
    return best.length ? `; looks at ${best.map(([, i]) => this.answer.source[i].text).join(", ")}` : "";
  }

  rove(place) {
    this.buttons.forEach((button, i) => { button.tabIndex = i === Math.min(place, this.buttons.length - 1) ? 0 : -1; });
  }

  keys(event, place) {
    const backward = getComputedStyle(this.lines.lastElementChild).direction === "rtl" ? 1 : -1;
    const to = { ArrowLeft: place + backward, ArrowRight: place - backward, Home: 0, End: this.buttons.length - 1 }[event.key];
    if (to !== undefined) this.buttons[Math.max(0, Math.min(to, this.buttons.length - 1))].focus();
    else if (event.key === "ArrowDown") { if (this.open === place) this.words.focus(); else this.list(place); }
    else if (event.key === "Escape" && this.open !== null) this.close();
    else return;
    event.preventDefault();
  }

  /** Lines from a word to the source words that the model looked at. */
  attend(place) {
    const weights = place === null || place === undefined ? null : this.answer?.attention?.[place];
    this.svg.replaceChildren();
    this.sourceWords.forEach((word, i) => {
      const weight = weights?.[i] ?? 0;
      word.classList.toggle("seen", weight >= 0.05);
      word.style.setProperty("--weight", weight.toFixed(3));
    });
    if (!weights) return;
    const box = this.lines.getBoundingClientRect();
    const to = this.buttons[place].getBoundingClientRect();
    weights.forEach((weight, i) => {
      if (weight < 0.02) return;
      const from = this.sourceWords[i].getBoundingClientRect();
      const [x1, y1] = [from.left + from.width / 2 - box.left, from.bottom - box.top];
      const [x2, y2] = [to.left + to.width / 2 - box.left, to.top - box.top];
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      const bend = Math.max((y2 - y1) / 2, 6);
      path.setAttribute("d", `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`);
      path.setAttribute("stroke-width", (0.6 + 3.4 * weight).toFixed(2));
      path.setAttribute("stroke-opacity", Math.min(1, 0.2 + weight).toFixed(2));
      this.svg.append(path);
    });
  }

  certify() {
    const proof = this.answer.proof;
    this.badge.hidden = this.further.hidden = true;
    this.further.textContent = "Search on";
    this.badge.classList.remove("open");
    if (!proof) return;
    const given = this.answer.words.some((word) => word.given);
    if (proof.best) {
      this.badge.textContent = given ? "proved best after your words" : "proved best";
      this.badge.title = "No other translation has a higher score.";
    } else if (proof.gap !== null) {
      this.badge.textContent = `at most ${proof.gap.toFixed(2)} from the best`;
      this.badge.title = `No translation has a log-probability${proof.per_piece ? " per piece" : ""} that is higher by more than this.`;
      this.badge.classList.add("open");
      this.further.hidden = proof.searched; // who has looked at thousands finds little with as many
    } else return;
    this.badge.hidden = false;
  }

  notes() {
    const list = el("ul", { className: "notes" });
    const unknown = this.answer.source.filter((word) => word.unknown).map((word) => `“${word.text}”`);
    if (unknown.length) list.append(el("li", {}, `Outside the model’s vocabulary: ${unknown.join(", ")}.`));
    for (const word of this.answer.words) if (word.given) noteAbout(word, list);
    if (this.answer.proof?.forced) list.append(el("li", {}, "The model knows no way to end this translation; it was cut here."));
    return list;
  }

  plain() {
    const copy = el("button", { type: "button", className: "quiet", onclick: async () => {
      try {
        await navigator.clipboard.writeText(this.answer.text);
        copy.textContent = "Copied";
      } catch { copy.textContent = "Select the text to copy it"; }
      setTimeout(() => { copy.textContent = "Copy"; }, 1500);
    } }, "Copy");
    const edit = el("button", { type: "button", className: "quiet", onclick: () => writer.take(this) }, "Edit below");
    return el("p", { className: "plain" }, el("span", { dir: "auto" }, this.answer.text), el("span", { className: "tools" }, edit, " ", copy));
  }

  /* The list of what could stand in a place */

  list(place) {
    this.close(false);
    this.open = place;
    this.buttons[place].setAttribute("aria-expanded", "true");
    this.attend(place);
    const names = this.answer.words.slice(0, place).map((word) => word.name);
    const current = this.places[place];
    this.words = new WordList(this, current, { run: this.run.run, source: this.source, words: names }, {
      choose: (word) => this.choose(place, names, word),
      own: (text) => this.own(place, names, text),
    });
    this.panel.replaceChildren(this.words.element);
    this.words.load();
  }

  choose(place, names, word) {
    if (word.name === null) this.translate(this.source, names, "", true, place);
    else this.translate(this.source, [...names, word.name], "", false, place);
  }

  own(place, names, text) { this.translate(this.source, names, text, false, place); }

  close(focus = true) {
    this.words?.stop();
    this.panel?.replaceChildren();
    if (this.open === null) return;
    const button = this.buttons[this.open];
    this.open = null;
    button.setAttribute("aria-expanded", "false");
    if (focus) button.focus();
    else this.attend(null);
  }
}

/** The words that could stand in a place: all of them, or those of a beginning that was opened. */
class WordList {
  constructor(card, current, place, { choose, own }) {
    Object.assign(this, { card, current, place, choose, own, run: card.run });
    this.requests = new Requests();
    this.opened = []; // beginnings, one below the other
    this.all = false; // a list of all that was followed
    this.name = current.name === null ? "the end" : `“${current.text}”`;
    this.content = el("div", {}, el("p", { role: "status" }, "…"));
    this.input = el("input", { type: "text", dir: "auto", autocomplete: "off", spellcheck: false, maxLength: 200, "aria-label": `Your own words in place of ${this.name}`, placeholder: "or your own" });
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && this.input.value.trim()) own(this.input.value);
      else if (event.key === "Escape") card.close();
    });
    this.element = el("div", { className: "panel" },
      el("h3", {}, `In place of ${this.name}`, button("Close", () => card.close(), "Close the list")), this.content,
      el("div", { className: "own" }, this.input, button("Use it", () => this.input.value.trim() && own(this.input.value))));
  }

  get request() { return { ...this.place, opened: this.opened }; }

  stop() {
    this.requests.abort?.abort();
    this.following = false;
  }

  async load(focus = null) {
    this.stop();
    const found = await this.ask("alternatives", { ...this.request, all: this.all });
    if (found) this.show(found, focus);
  }

  async ask(name, body) {
    try {
      return await this.requests.post(name, body);
    } catch (error) {
      this.content.replaceChildren(el("p", { className: "warning", role: "alert" }, error.message), this.opened.length ? this.backButton() : "");
      return null;
    }
  }

  show(found, focus) {
    this.found = found;
    this.items = found.items;
    const last = this.opened.at(-1);
    const [sentence, sure] = sentenceAbout(found, this.run, "");
    const about = last ? `Other words that begin with “${last.text}” have ${scoreText(found.mass, this.run)} in all: ${sentence[0].toLowerCase()}${sentence.slice(1)}` : sentence;
    this.list = el("ul", { className: "words", role: "listbox", "aria-label": last ? `Words that begin with ${last.text}` : `Words that could stand in place of ${this.name}` });
    this.status = el("p", { role: "status" }, sure ? el("strong", {}, about) : about, shareOfShown(found, this.run, Boolean(last)), sharesOf(found, this.run, Boolean(last)));
    this.more = button("", () => this.showMore());
    this.more.classList.add("more");
    this.tools = el("div", { className: "follow" }, last ? this.backButton() : "", this.more, found.more ? this.followButton() : "");
    this.content.replaceChildren(this.status, this.list, this.tools, this.remark(found));
    this.fill(SHOWN);
    this.focus(focus);
  }

  /** What stays open when all was followed. */
  remark(found) {
    if (!found.beginnings || found.more) return "";
    return el("p", {}, "These beginnings have more pieces than are followed in one word.");
  }

  fill(n) {
    this.shown = Math.min(n, this.items.length);
    const added = this.items.slice(this.list.childElementCount, this.shown).map((word, i) => el("li", {
      role: "option", tabIndex: i || this.list.childElementCount ? -1 : 0, "aria-selected": String(!word.beginning && word.name === this.current.name),
      "aria-label": word.beginning ? `${word.text}…: ${scoreText(word.score, this.run)}, a beginning${word.longest ? " that is not followed further" : "; Enter opens it"}` : null,
      onclick: () => this.use(word), onkeydown: (event) => this.keys(event, word),
    }, wordLabel(word), el("small", {}, scoreText(word.score, this.run))));
    this.list.append(...added);
    shareBars(this.list, this.items, this.found.mass);
    const left = this.found.count + this.found.beginnings - this.shown;
    this.more.hidden = !this.run.sparse || left <= 0;
    this.more.textContent = left > MORE ? `Show ${count(MORE)} of ${count(left)} more` : `Show all ${count(this.shown + left)}`;
  }

  async showMore() {
    const first = this.shown;
    const wanted = first + MORE;
    if (this.items.length < Math.min(wanted, this.found.count + this.found.beginnings)) {
      const found = await this.ask("alternatives", { ...this.request, all: this.all, skip: this.items.length });
      if (!found) return;
      this.items = [...this.items, ...found.items];
    }
    this.fill(wanted);
    this.list.children[first]?.focus();
  }

  use(word) {
    if (!word.beginning) this.choose(word);
    else if (!word.longest) this.openBeginning(word);
  }

  openBeginning(word) {
    this.opened = [...this.opened, { name: word.name, text: word.text, all: this.all }];
    this.all = false;
    this.load();
  }

  back() {
    const last = this.opened.at(-1);
    this.opened = this.opened.slice(0, -1);
    this.all = last.all;
    this.load(last.name);
  }

  backButton() { return button("Back", () => this.back(), "Back to the list before"); }

  followButton() { return button("Follow all to the end", () => this.followAll()); }

  /** Slice after slice, until nothing is open, the server says it is enough, or the user stops it. */
  async followAll() {
    this.following = true;
    const end = () => { this.following = false; stop.textContent = "Stopping…"; };
    const stop = button("Stop", end);
    stop.addEventListener("keydown", (event) => { if (event.key === "Escape") end(); });
    const status = el("span", { role: "status" }, "following…");
    this.tools.replaceChildren(stop, status);
    stop.focus();
    let budget = SLICE;
    let answer = null;
    while (this.following) {
      try {
        answer = await this.requests.post("follow", { ...this.request, budget });
      } catch (error) {
        if (error.status !== 429) { this.following = false; status.textContent = error.message; return; }
        await new Promise((done) => setTimeout(done, 1000)); // others want to be served, too
        continue;
      }
      if (!answer) return; // the list was closed
      const share = percent(Math.min(1, answer.open_score / this.found.mass));
      status.textContent = `${beginningCount(answer.followed)} followed; ${count(answer.open)} open, with ${share} of ${wholeOf(this.run, this.opened.length > 0)}`;
      if (!answer.more) break;
      budget = answer.followed + SLICE;
    }
    this.all = true;
    await this.load();
    if (answer?.more === false && answer.open && this.found?.more) {
      this.content.append(el("p", {}, `Stopped after ${beginningCount(answer.followed)}: ever longer words follow. Open a beginning to go on there.`));
    }
  }

  focus(name = null) {
    const back = name === null ? null : [...(this.list?.children ?? [])][this.items.findIndex((word) => word.beginning && word.name === name)];
    (back ?? this.list?.querySelector("[aria-selected=true]") ?? this.list?.firstElementChild ?? this.input)?.focus();
  }

  keys(event, word) {
    const item = event.currentTarget;
    const to = { ArrowDown: item.nextElementSibling, ArrowRight: item.nextElementSibling, ArrowUp: item.previousElementSibling,
      ArrowLeft: item.previousElementSibling, Home: item.parentNode.firstElementChild, End: item.parentNode.lastElementChild };
    if (event.key in to) to[event.key]?.focus();
    else if (event.key === "Enter" || event.key === " ") this.use(word);
    else if ((event.key === "Escape" || event.key === "Backspace") && this.opened.length) this.back();
    else if (event.key === "Escape") this.card.close();
    else if (event.key.length === 1 && !event.ctrlKey && !event.metaKey && !event.altKey) {
      this.input.focus(); // the letter goes there
      return;
    } else return;
    event.preventDefault();
  }
}

function button(text, onclick, label = null) {
  return el("button", { type: "button", className: "quiet", "aria-label": label, onclick }, text);
}

function noteAbout(word, list) {
  if (word.unknown) list.append(el("li", {}, `“${word.text}” is outside the model’s vocabulary; going on regardless.`));
  else if (word.impossible) list.append(el("li", {}, `“${word.text}”: the model gives this word probability 0; going on regardless.`));
}

/** How much of the probability the words hold that are shown at first. */
function shareOfShown(found, run, opened) {
  const whole = wholeOf(run, opened);
  const all = found.count + found.beginnings;
  if (found.complete && all <= SHOWN && !found.lost_share) return ` ${all === 1 ? "It holds" : "They hold"} all of ${whole}.`;
  if (!run.sparse || all <= SHOWN) return ""; // the sentence before says it
  const part = found.items.slice(0, SHOWN).reduce((sum, word) => sum + word.score, 0) / found.mass;
  return ` The first ${SHOWN} hold ${percent(Math.min(1, part))} of ${whole}.`;
}

function shareBars(list, words, total) {
  [...list.children].forEach((item, i) => item.style.setProperty("--share", Math.min(1, words[i].score / (total || 1)).toFixed(4)));
}

/* Writing with suggestions */

const writer = {
  requests: new Requests(),
  anchor: { text: "", names: [] }, // what was accepted: its words are known and not divided anew
  found: null,
  selected: 0,
  hidden: false,

  get run() { return runs[Number($("writer").value)]; },

  begin(source) {
    this.source = source;
    $("write").hidden = false;
    $("draft").value = "";
    this.anchor = { text: "", names: [] };
    this.hidden = false;
    this.suggest();
  },

  /** Goes on with a card's translation. */
  take(card) {
    $("writer").value = String(card.run.run);
    $("draft").value = card.answer.text;
    this.anchor = { text: card.answer.text, names: card.answer.words.map((word) => word.name) };
    $("draft").focus();
    this.suggest();
  },

  /** The words accepted so far, as far as the text still begins with them, and the rest of it. */
  parts() {
    const text = $("draft").value;
    const { text: kept, names } = this.anchor;
    const rest = text.slice(kept.length);
    const stands = kept && text.startsWith(kept) && !/^[\p{L}\p{N}\p{M}'’]/u.test(rest);
    return stands ? { names, rest } : { names: [], rest: text };
  },

  async suggest() {
    if (!this.source || !this.run) return;
    const { names, rest } = this.parts();
    try {
      const found = await this.requests.post("suggest", { run: this.run.run, source: this.source, words: names, typed: rest });
      if (!found) return;
      fail(null);
      this.found = found;
      this.selected = 0;
      this.show();
    } catch (error) {
      this.found = null;
      $("suggestions").replaceChildren();
      $("ghost").replaceChildren();
      $("summary").textContent = error.message;
    }
  },

  show() {
    const { found } = this;
    const isOpen = !this.hidden && found.candidates.length > 0;
    const [sentence, sure] = sentenceAbout(found, this.run, found.letters);
    const isDone = found.complete && found.count === 1 && found.candidates[0].name === null;
    $("summary").replaceChildren(isDone ? el("strong", {}, "Complete: nothing else can follow.") : sure ? el("strong", {}, sentence) : sentence,
      found.letters || !this.run.sparse ? "" : sharesOf(found, this.run));
    $("suggestions").replaceChildren(...(isOpen ? found.candidates.slice(0, SHOWN).map((word, i) => el("li", {
      id: `suggestion-${i}`, role: "option", "aria-selected": String(i === this.selected),
      onpointerdown: (event) => event.preventDefault(), // the text keeps the focus
      onclick: () => { this.accept([word]); $("draft").focus(); },
    }, this.marked(word), el("small", {}, scoreText(word.score, this.run)))) : []));
    shareBars($("suggestions"), found.candidates, found.mass);
    if (isOpen && found.candidates.length > SHOWN) $("summary").append(` The first ${SHOWN} are shown.`);
    $("draft").setAttribute("aria-expanded", String(isOpen));
    if (isOpen) $("draft").setAttribute("aria-activedescendant", `suggestion-${this.selected}`);
    else $("draft").removeAttribute("aria-activedescendant");
    $("draft-notes").replaceChildren();
    for (const word of found.words) noteAbout(word, $("draft-notes"));
    this.showGhost();
  },

  marked(word) {
    const label = wordLabel(word);
    const { letters } = this.found;
    if (word.name === null || word.unknown || !letters || !word.text.toLowerCase().startsWith(letters.toLowerCase())) return label;
    label.replaceChildren(el("mark", {}, word.text.slice(0, letters.length)), label.textContent.slice(letters.length));
    return label;
  },

  /** The text without the letters of the word that is being written. */
  base() {
    let text = $("draft").value.trimEnd();
    const { letters } = this.found;
    if (letters && text.endsWith(letters)) text = text.slice(0, -letters.length).trimEnd();
    return text;
  },

  showGhost() {
    const ahead = this.hidden ? [] : this.found.ahead.filter((word) => word.name !== null);
    const written = $("draft").value;
    const whole = this.base() + ahead.map((word) => word.insert).join("");
    const fits = ahead.length && whole.toLowerCase().startsWith(written.trimEnd().toLowerCase());
    let rest = fits ? whole.slice(written.trimEnd().length) : "";
    if (written !== written.trimEnd()) rest = rest.trimStart();
    $("ghost").replaceChildren(written, el("span", {}, rest));
  },

  accept(words) {
    if (words[0]?.beginning) { this.begun(words[0]); return; }
    const real = words.filter((word) => word.name !== null && !word.unknown);
    if (!real.length) return;
    const names = this.found.words.map((word) => word.name);
    const text = this.base() + real.map((word) => word.insert).join("");
    this.anchor = { text, names: [...names, ...real.map((word) => word.name)] };
    $("draft").value = `${text} `;
    this.autoSpace = true;
    this.suggest();
  },

  /** Takes over the letters of a beginning; the word goes on. */
  begun(word) {
    const names = this.found.words.map((w) => w.name);
    this.anchor = { text: this.base(), names };
    $("draft").value = this.base() + word.insert;
    this.suggest();
  },

  keys(event) {
    const { found } = this;
    const isOpen = found && !this.hidden && found.candidates.length > 0;
    const shown = Math.min(found?.candidates.length ?? 0, SHOWN);
    const ahead = found?.ahead.filter((word) => word.name !== null) ?? [];
    if (event.isComposing) return;
    if (event.key === "Tab" && !event.shiftKey && isOpen && (ahead.length || this.acceptable())) {
      this.accept(this.selected === 0 && ahead.length ? ahead : [found.candidates[this.selected]]);
    } else if (event.key === "ArrowRight" && (event.ctrlKey || event.metaKey) && ahead.length && this.atEnd()) {
      this.accept(ahead.slice(0, 1));
    } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && isOpen) {
      this.selected = (this.selected + (event.key === "ArrowDown" ? 1 : shown - 1)) % shown;
      this.show();
      $(`suggestion-${this.selected}`).scrollIntoView({ block: "nearest" });
    } else if (event.key === "Escape") {
      this.hidden = true;
      if (found) this.show();
    } else if (event.key === "Enter") {
      if (isOpen && this.selected > 0) this.accept([found.candidates[this.selected]]);
    } else return;
    event.preventDefault();
  },

  acceptable() {
    const word = this.found.candidates[this.selected];
    // A beginning that adds no letter would stand still.
    return word && word.name !== null && !word.unknown && !(word.beginning && word.text.length <= this.found.letters.length);
  },

  atEnd() { return $("draft").selectionStart === $("draft").value.length; },

  typed(event) {
    const draft = $("draft");
    // The space that came with a suggestion gives way to a full stop or comma.
    if (this.autoSpace && event.inputType === "insertText" && /^[.,;:!?%)\]}…]$/.test(event.data ?? "") && draft.value.endsWith(` ${event.data}`)) {
      draft.value = draft.value.slice(0, -2) + event.data;
    }
    this.autoSpace = false;
    this.hidden = false;
    $("ghost").replaceChildren(draft.value);
    this.suggest();
  },
};

/* The page */

function chosen() {
  return [...$("systems").querySelectorAll("input:checked")].map((box) => Number(box.value));
}

async function translateAll() {
  const source = $("source").value.trim();
  if (!source) {
    fail(new Error("Type a sentence first."));
    $("source").focus();
    return;
  }
  fail(null);
  offerExamples();
  layOut();
  $("translate").setAttribute("aria-busy", "true");
  const work = chosen().map((number) => cards.get(number).translate(source));
  if (writer.source !== source) writer.begin(source);
  await Promise.all(work);
  $("translate").removeAttribute("aria-busy");
}

/** The cards of the systems that are chosen, in their order. */
function layOut() {
  const numbers = chosen();
  $("cards").replaceChildren(...numbers.map((number) => {
    if (!cards.has(number)) cards.set(number, new Card(runs[number]));
    return cards.get(number).element;
  }));
  $("cards").classList.toggle("many", numbers.length > 1);
}

function chooseSystems() {
  layOut();
  const source = writer.source;
  if (!source) return;
  for (const number of chosen()) if (cards.get(number).source !== source) cards.get(number).translate(source);
}

function systemBox(run, isChosen) {
  if (run.problem) return el("span", { className: "broken" }, `${run.label} `, el("small", {}, `cannot be used: ${run.problem}`));
  return el("label", { title: run.name }, el("input", { type: "checkbox", value: String(run.run), checked: isChosen, onchange: chooseSystems }),
    run.label, run.note ? el("small", { className: "half" }, "half-trained") : null);
}

function example(text) {
  return el("button", { type: "button", dir: "auto", title: text, onclick: () => {
    $("source").value = text;
    translateAll();
  } }, text);
}

/** Examples are for who has not typed anything. */
function offerExamples() { $("examples").hidden = $("source").value.trim() !== ""; }

async function begin() {
  try {
    const answer = await (await fetch("/api/runs")).json();
    runs = answer.runs;
  } catch { fail(new Error("the server does not answer: was it ended?")); return; }
  const usable = runs.filter((run) => !run.problem);
  const first = new Set(usable.slice(0, 3).map((run) => run.run));
  $("systems").append(...runs.map((run) => systemBox(run, first.has(run.run))));
  $("writer").append(...usable.map((run) => el("option", { value: String(run.run) }, run.label)));
  $("writer").value = String((usable.find((run) => run.sparse) ?? usable[0]).run);
  const names = new Intl.DisplayNames(["en"], { type: "language", fallback: "code" });
  const name = (code) => { try { return names.of(code); } catch { return code; } };
  $("pair").textContent = `${name(usable[0].source)} → ${name(usable[0].target)}`;
  $("source").lang = usable[0].source;
  $("draft").lang = usable[0].target;
  $("examples").append(...usable[0].examples.map(example));
  $("translate").addEventListener("click", translateAll);
  $("source").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.isComposing) { event.preventDefault(); translateAll(); }
  });
  $("source").addEventListener("input", offerExamples);
  $("draft").addEventListener("input", (event) => writer.typed(event));
  $("draft").addEventListener("keydown", (event) => writer.keys(event));
  $("writer").addEventListener("change", () => writer.suggest());
  addEventListener("resize", () => cards.forEach((card) => card.answer && card.element.isConnected && card.attend(card.open)));
  $("source").focus({ preventScroll: true });
}

begin();
