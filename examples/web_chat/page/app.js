// The page: a conversation with the model in chat.shaderbundle. Texts of the bundle and of the model reach the document as
// text alone.

import { loadGenerator } from "@shaderloom/runtime/generate";
import { makeWords } from "./words.js";

const NUMBERS = ["temperature", "topK", "topP", "repetitionPenalty", "seed", "maxNewTokens"];

const at = (id) => document.getElementById(id);

/** The generator, once it is there, the messages so far, and what ends the answer that is written. */
let generator;
let messages = [];
let controller;

function show(text, isBad = false) {
  at("status").textContent = text;
  at("status").classList.toggle("bad", isBad);
}

function enable() {
  const isWriting = controller !== undefined;
  for (const id of ["question", "send"]) at(id).disabled = !generator || isWriting;
  at("stop").disabled = !isWriting;
  at("reset").disabled = isWriting || !messages.length;
}

/** Add an entry to the log; return the elements of its text and of its note. */
function addEntry(role, text) {
  const entry = document.createElement("li");
  entry.className = role;
  const [own, note] = ["text", "note"].map((name) => {
    const part = document.createElement("p");
    part.className = name;
    entry.append(part);
    return part;
  });
  own.textContent = text;
  at("log").append(entry);
  entry.scrollIntoView({ block: "end" });
  return { own, note };
}

function options() {
  const chosen = NUMBERS.flatMap((id) => (at(id).value === "" ? [] : [[id, Number(at(id).value)]]));
  return Object.fromEntries(chosen);
}

const ENDS = { length: "cut at the most tokens", stop: "", end: "", "": "stopped" };

function describe({ firstTokenSeconds, tokensPerSecond, newTokens, reusedTokens, promptTokens, endedBy, seed }, isDrawn) {
  const parts = [
    `first token after ${firstTokenSeconds.toFixed(2)} s`, `${tokensPerSecond.toFixed(1)} tokens/s`,
    `${newTokens} tokens`, `prompt of ${promptTokens}, ${reusedTokens} of them before`,
  ];
  return [...parts, isDrawn ? `seed ${seed}` : "", ENDS[endedBy]].filter(Boolean).join(" · ");
}

async function answer(question) {
  messages.push({ role: "user", content: question });
  addEntry("user", question);
  const { own, note } = addEntry("assistant", "");
  controller = new AbortController();
  enable();
  show("Reading");
  let generation;
  try {
    const ids = await generator.encode(messages);
    const { maxNewTokens, ...others } = options();
    const room = generator.maxLength - ids.length;
    if (room < 1) throw new Error(`this chat is longer than ${generator.maxLength} tokens: begin a new one`);
    const { signal } = controller;
    generation = generator.generate(ids, { ...others, signal, maxNewTokens: Math.min(maxNewTokens ?? room, room) });
    for await (const piece of generation) {
      own.append(piece);
      note.textContent = describe(generation.statistics, others.temperature > 0);
      show("Writing");
      own.scrollIntoView({ block: "end" });
    }
    show("");
  } catch (error) {
    const isStopped = controller.signal.aborted;
    show(isStopped ? "Stopped" : String(error?.message ?? error), !isStopped);
  }
  if (generation) {
    own.textContent = generation.text;
    note.textContent = describe(generation.statistics, at("temperature").valueAsNumber > 0);
    messages.push({ role: "assistant", content: generation.text });
  } else messages.pop();
  controller = undefined;
  enable();
  at("question").focus();
}

at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const question = at("question").value.trim();
  if (!question || !generator || controller) return;
  at("question").value = "";
  answer(question);
});
at("question").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  at("form").requestSubmit();
});
at("stop").addEventListener("click", () => controller?.abort());
at("reset").addEventListener("click", () => {
  messages = [];
  at("log").replaceChildren();
  show("");
  enable();
});

function onProgress({ what, done, total, awaits }) {
  at("progress").max = Math.max(total, 1);
  at("progress").value = done;
  const amount = what === "weights" ? `${(done / 1e6).toFixed(0)} of ${(total / 1e6).toFixed(0)} MB` : `${done} of ${total}`;
  show(`Loading: ${what}, ${amount}${awaits ? ` (${awaits})` : ""}`);
}

const open = (cache) => loadGenerator("chat.shaderbundle/", { words: makeWords, onProgress, cache });

try {
  generator = await open(true).catch((error) => {
    if (error.kind !== "storage") throw error;
    return open(false); // a page that may not store, or has no room for the model
  });
  generator.session.lost.then((reason) => show(`The GPU was lost (${reason}): load the page again`, true));
  show("");
} catch (error) {
  show(String(error?.message ?? error), true);
}
at("progress").hidden = true;
enable();
