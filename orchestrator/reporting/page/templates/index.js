// Puts in place the rows that the server sends, in which all text of a study is escaped.
const events = new EventSource("events");
events.addEventListener("rows", (event) => { document.getElementById("rows").innerHTML = JSON.parse(event.data).html; });
const state = document.getElementById("state");
events.onopen = () => { state.textContent = "live"; };
events.onerror = () => {
  // Closed for good: another server answers, which knows another token.
  const refused = events.readyState === EventSource.CLOSED;
  state.textContent = refused ? "not connected: h2h serve was started anew, open the address that it printed" : "not connected: asked again in a moment";
};
