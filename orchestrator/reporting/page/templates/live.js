// Puts in place what the server sends: pieces of page that it made, in which all text of a study is escaped.
const report = document.getElementById("report");
let version = Number(report.dataset.version);
async function update(wanted) {
  if (wanted === version) return;
  version = wanted;
  const answer = await fetch("report");
  if (!answer.ok) return;
  const open = [...report.querySelectorAll("details[open] > summary")].map((summary) => summary.textContent);
  const chosen = report.querySelector("input:checked")?.id;
  report.innerHTML = await answer.text();
  for (const summary of report.querySelectorAll("summary")) summary.parentElement.open = open.includes(summary.textContent);
  const input = chosen && document.getElementById(chosen);
  if (input) input.checked = true;
}
const events = new EventSource("events");
events.addEventListener("now", (event) => { document.getElementById("now").innerHTML = JSON.parse(event.data).html; });
events.addEventListener("answer", (event) => { document.getElementById("answer").innerHTML = JSON.parse(event.data).html; });
events.addEventListener("report", (event) => update(JSON.parse(event.data).version));
const state = document.getElementById("state");
events.onopen = () => { state.textContent = "live"; };
events.onerror = () => {
  // Closed for good: another server answers, which knows another token.
  const refused = events.readyState === EventSource.CLOSED;
  state.textContent = refused ? "not connected: h2h serve was started anew, open the address that it printed" : "not connected: asked again in a moment";
};
