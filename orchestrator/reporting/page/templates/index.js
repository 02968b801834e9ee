// Puts in place the rows that the server sends, in which all text of a study is escaped.
const events = new EventSource("events");
events.addEventListener("rows", (event) => { document.getElementById("rows").innerHTML = JSON.parse(event.data).html; });
const state = document.getElementById("state");
events.onopen = () => { state.textContent = "live"; };
events.onerror = () => { state.textContent = "not connected: asked again in a moment"; };
