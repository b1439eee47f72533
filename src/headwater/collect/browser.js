// Events from a page to `headwater collect http`.
//
//   <script src="https://collect.example/headwater.js"></script>
//   headwater.identify("user-42");
//   headwater.track("browse", {item: "shoe-7"});
//
// An event stays in localStorage, under a key of its own, until the collector says that the broker
// has it; so a closed tab, a lost network or a restart of the collector loses none. It may be sent
// twice (a page that is left cannot hear the answer): `event_id` tells the copies.
(() => {
  "use strict";

  const FLUSH_MS = 1000;
  const BATCH_EVENTS = 50;
  const BATCH_BYTES = 60000; // browsers take at most 64 KiB for a request that outlives its page
  const MAX_WAITING = 1000;
  const ORPHAN_MS = 30000; // an event this old belongs to no page that is still at work
  const REST_MS = [1000, 60000];
  const PREFIX = "headwater.event.";
  const USER = "headwater.user";
  const FINAL = new Set([400, 413, 415]);

  const endpoint = new URL("events", document.currentScript.src).href; // beside the script
  const counts = { sent: 0, refused: 0, dropped: 0 };
  const waiting = []; // {name, text}, oldest first
  let batchEvents = BATCH_EVENTS;
  let underWay = [];
  let timer = null;
  let failures = 0;

  // localStorage may be missing, forbidden or full; then events live in memory only.
  const stored = (work) => {
    try {
      return work(window.localStorage);
    } catch {
      return null;
    }
  };

  const uuid = () => {
    if (crypto.randomUUID) return crypto.randomUUID();
    const bytes = crypto.getRandomValues(new Uint8Array(16)); // a page without https
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
    return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
  };

  let user = stored((store) => store.getItem(USER)) || "anonymous-" + uuid();
  const identify = (id) => {
    user = String(id);
    stored((store) => store.setItem(USER, user));
  };
  identify(user);

  const keep = (entry) => {
    waiting.push(entry);
    stored((store) => store.setItem(entry.name, entry.text));
    while (waiting.length > MAX_WAITING) {
      forget([waiting.find((old) => !underWay.includes(old))]);
      counts.dropped += 1;
    }
  };

  const forget = (entries) => {
    for (const entry of entries) {
      const place = waiting.indexOf(entry);
      if (place >= 0) waiting.splice(place, 1);
      stored((store) => store.removeItem(entry.name));
    }
  };

  // What earlier pages could not send, oldest first; their names begin with the time.
  const adopt = () => {
    const found = stored((store) => Object.keys(store).filter((key) => key.startsWith(PREFIX))) || [];
    for (const name of found.sort()) {
      const age = Date.now() - Number(name.slice(PREFIX.length).split(".")[0]);
      const text = stored((store) => store.getItem(name));
      const mine = waiting.some((entry) => entry.name === name);
      if (text && age > ORPHAN_MS && !mine) keep({ name, text });
    }
    schedule(0);
  };

  const track = (event, fields) => {
    const now = new Date();
    const whole = { ...fields, event_id: uuid(), event, user_id: user, time: now.toISOString() };
    const stamp = String(now.getTime()).padStart(15, "0");
    keep({ name: PREFIX + stamp + "." + whole.event_id, text: JSON.stringify(whole) });
    if (waiting.length >= batchEvents && failures === 0) flush();
    else schedule(FLUSH_MS);
    return whole.event_id;
  };

  const schedule = (ms) => {
    if (timer === null && waiting.length > 0) timer = setTimeout(flush, ms);
  };

  const size = (text) => new Blob([text]).size;

  const batch = (entries) => {
    const chosen = [];
    let bytes = 0;
    for (const entry of entries.slice(0, batchEvents)) {
      bytes += size(entry.text) + 1;
      if (chosen.length > 0 && bytes > BATCH_BYTES) break;
      chosen.push(entry);
    }
    return chosen;
  };

  const bodyOf = (entries) => entries.map((entry) => entry.text).join("\n");

  const flush = async () => {
    clearTimeout(timer);
    timer = null;
    if (underWay.length > 0 || waiting.length === 0) return;
    const entries = (underWay = batch(waiting));
    let rest = 0;
    try {
      rest = await send(entries);
    } catch {
      rest = backoff(0); // no network, or the collector is away
    }
    underWay = [];
    schedule(rest);
  };

  // Resolves to how long to wait before the next batch.
  const send = async (entries) => {
    const body = bodyOf(entries);
    // Text needs no preflight, so it also works while a page goes away.
    const answer = await fetch(endpoint, {
      method: "POST",
      body,
      credentials: "omit",
      keepalive: size(body) <= BATCH_BYTES,
    });
    if (answer.status === 413 && entries.length > 1) {
      batchEvents = Math.ceil(entries.length / 2);
      return 0;
    }
    if (!answer.ok && !FINAL.has(answer.status)) {
      return backoff(1000 * Number(answer.headers.get("retry-after") || 0));
    }
    const told = await answer.json();
    const refused = answer.ok ? told.refused : entries.length;
    counts.sent += entries.length - refused;
    counts.refused += refused;
    forget(entries);
    failures = 0;
    return waiting.length >= batchEvents ? 0 : FLUSH_MS;
  };

  const backoff = (least) => {
    const [first, most] = REST_MS;
    const rest = Math.min(first * 2 ** Math.min(failures, 20), most);
    failures += 1;
    return Math.max(least, rest / 2 + (Math.random() * rest) / 2);
  };

  // The page goes away: hand over what no request carries yet. Nobody will hear whether it
  // arrived, so the events stay in localStorage and the next page sends them again.
  const leave = () => {
    let left = waiting.filter((entry) => !underWay.includes(entry));
    while (left.length > 0) {
      const entries = batch(left);
      if (!navigator.sendBeacon(endpoint, bodyOf(entries))) return;
      left = left.slice(entries.length);
    }
  };

  addEventListener("pagehide", leave);
  addEventListener("online", flush);
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "hidden" && failures === 0) flush();
  });

  adopt();
  setInterval(adopt, ORPHAN_MS);
  window.headwater = {
    track,
    identify,
    flush,
    stats: () => ({ ...counts, waiting: waiting.length }),
  };
})();
