"use strict";
const sheet = JSON.parse(document.getElementById("sheet").textContent);
const name = `human_eval ${sheet.study} annotator ${sheet.annotator}`;
const find = (id) => document.getElementById(id);
const letter = (index) => String.fromCharCode(65 + index);
const total = sheet.items.reduce((sum, item) => sum + item.candidates.length, 0);
const state = load();

function load() {
  const fresh = { position: 0, ratings: {} };
  try {
    const saved = JSON.parse(localStorage.getItem(name));
    if (saved && typeof saved.ratings === "object") {
      const position = Math.min(Math.max(saved.position | 0, 0), sheet.items.length - 1);
      return { position, ratings: saved.ratings };
    }
  } catch { /* save() says so as soon as there is something to lose */ }
  return fresh;
}

function save() {
  try {
    localStorage.setItem(name, JSON.stringify(state));
  } catch {
    find("warning").hidden = false;
    find("warning").textContent =
      "This browser does not keep your marks: press Export before you close the page.";
  }
}

function element(tag, options, ...children) {
  const made = Object.assign(document.createElement(tag), options);
  made.append(...children);
  return made;
}

const marksOf = (index) => state.ratings[index + 1] || {};
const judged = () => sheet.items.reduce(
  (sum, item, index) => sum + Object.keys(marksOf(index)).length, 0);

function rate(index, candidate, mark) {
  const marks = { ...marksOf(index) };
  if (mark) marks[candidate] = mark;
  else delete marks[candidate];
  state.ratings[index + 1] = marks;
  save();
  showProgress();
}

function choice(index, candidate, mark, text, label) {
  const input = element("input", {
    type: "radio", name: candidate, value: mark, checked: (marksOf(index)[candidate] || "") === mark,
    onchange: () => rate(index, candidate, mark), ariaLabel: label });
  return element("label", { className: mark ? "" : "unknown" }, input, text);
}

function candidateCard(index, candidate, text) {
  const scale = element("div", { className: "scale" });
  for (const point of [1, 2, 3, 4]) {
    scale.append(element("div", { className: "point" }, ...["-", "", "+"].map((sign) => {
      const shown = point + sign.replace("-", "−");
      const spoken = `${point}${{ "-": " minus", "": "", "+": " plus" }[sign]}`;
      return choice(index, candidate, point + sign, shown, spoken);
    })));
  }
  scale.append(choice(index, candidate, "", "don’t know", "don’t know"));
  const words = text.trim()
    ? element("p", { className: "text", dir: "auto", textContent: text })
    : element("p", { className: "text none", textContent: "(this translation is empty)" });
  return element("fieldset", {},
    element("legend", { textContent: `Translation ${candidate}` }), words, scale);
}

function showProgress() {
  const done = judged();
  find("place").textContent = `Sentence ${state.position + 1} of ${sheet.items.length}`;
  find("progress").max = total;
  find("progress").value = done;
  find("count").textContent = `${done} of ${total} marks`;
}

function show(position) {
  state.position = Math.min(Math.max(position, 0), sheet.items.length - 1);
  const item = sheet.items[state.position];
  find("item").replaceChildren(
    element("h2", { textContent: "Original" }),
    element("p", { className: "source", dir: "auto", textContent: item.source }),
    ...item.candidates.map((text, i) => candidateCard(state.position, letter(i), text)));
  find("previous").disabled = state.position === 0;
  find("next").disabled = state.position === sheet.items.length - 1;
  showProgress();
}

function go(position) {
  find("instructions").open = false;
  show(position);
  save();
  find("item").scrollIntoView({ block: "start" });
}

function exportMarks() {
  const value = {
    format: "human_eval", version: 1, study: sheet.study, annotator: sheet.annotator,
    exported: new Date().toISOString(), ratings: state.ratings };
  const blob = new Blob([JSON.stringify(value, null, 1) + "\n"], { type: "application/json" });
  const link = element("a", {
    href: URL.createObjectURL(blob), download: `human_eval_annotator${sheet.annotator}.json` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

find("previous").onclick = () => go(state.position - 1);
find("next").onclick = () => go(state.position + 1);
find("export").onclick = exportMarks;
find("open").onclick = () => {
  const index = sheet.items.findIndex(
    (item, i) => Object.keys(marksOf(i)).length < item.candidates.length);
  if (index >= 0) go(index);
};
if (judged()) find("instructions").open = false;
show(state.position);
