// Requests to the server. What goes wrong becomes an Error with a message to show.

const LONGEST_PAUSE = 60;

/**
 * Asks the server; if it is too busy, once more after the time it says.
 * options.body: what to send as JSON; without it, it is a GET.
 * options.onPause: is told what to show while it waits.
 */
export async function ask(path, { body, signal, onPause } = {}) {
  let response = await send(path, body, signal);
  const seconds = Math.min(Number(response.headers.get("Retry-After")), LONGEST_PAUSE);
  if (response.status === 503 && seconds > 0) {
    onPause?.(`${await problem(response)} Trying again in ${seconds} s …`);
    await pause(1000 * seconds, signal);
    response = await send(path, body, signal);
  }
  if (!response.ok) throw new Error(await problem(response));
  return response.json();
}

/** Makes a function that runs `work(signal)` once it was not called for a while. A call aborts earlier work. */
export function latest(work, onError) {
  let controller;
  return async (delay) => {
    controller?.abort();
    controller = new AbortController();
    const { signal } = controller;
    try {
      await pause(delay, signal);
      await work(signal);
    } catch (error) {
      if (!signal.aborted) onError(error);
    }
  };
}

async function send(path, body, signal) {
  const options = body && {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  };
  try {
    return await fetch(path, { ...options, signal });
  } catch (error) {
    throw signal?.aborted ? error : new Error("The server cannot be reached.");
  }
}

async function problem(response) {
  const answer = await response.json().catch(() => null);
  const { detail } = answer ?? {};
  return typeof detail === "string" ? detail : `The server answered with the status ${response.status}.`;
}

async function pause(milliseconds, signal) {
  signal?.throwIfAborted();
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}
