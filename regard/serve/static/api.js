// The server's API. Every call can be given up through an AbortSignal.

/** What went wrong, in the server's words. */
export class Refused extends Error {}

async function checked(answer) {
  if (answer.ok) return answer;
  let message = `${answer.status} ${answer.statusText}`;
  try {
    message = (await answer.json()).error.message;
  } catch {
    // not JSON: the status has to do
  }
  const again = answer.headers.get("retry-after");
  throw new Refused(again ? `${message} (again in ${again} s)` : message);
}

export async function get(path) {
  return (await checked(await fetch(path))).json();
}

async function post(path, body, signal) {
  return checked(
    await fetch(path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      signal,
    }),
  );
}

export async function ask(path, body, signal) {
  return (await post(path, body, signal)).json();
}

/** Texts that a stream of completions brings, as they come. */
export async function* written(body, signal) {
  const answer = await post("/v1/completions", { ...body, stream: true }, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    const events = held.split("\n\n");
    held = events.pop();
    for (const event of events) {
      const data = event.slice("data: ".length);
      if (data === "[DONE]") return;
      const said = JSON.parse(data);
      if (said.error) throw new Refused(said.error.message);
      for (const choice of said.choices) yield choice.text;
    }
  }
}
