// Plays the behaviours of one file side by side and prints what became of each, a JSON document per line:
//
//   node run.mjs streams nats://127.0.0.1:4222
//   {"behaviour": "stream_is_updated", "error": null, "seconds": 0.1}
//
// The names of behaviours after the URL leave out all others. Exit status 0 means that all were played, whatever came of them.
import { DEADLINE_MS, Stage } from "./stage.mjs";

const [file, url, ...wanted] = process.argv.slice(2);
const { behaviours } = await import(`./${file}.mjs`);

// What goes wrong in the background of a behaviour is known when it is not done in time.
const strays = [];
process.on("unhandledRejection", (error) => strays.push(String(error)));

async function play(name) {
  const began = performance.now();
  const stage = new Stage(url);
  let deadline;
  const late = new Promise((_, reject) => {
    const giveUp = () => reject(new Error(`not done within ${DEADLINE_MS} ms; in the background: ${strays.join("; ")}`));
    deadline = setTimeout(giveUp, DEADLINE_MS);
  });
  let error = null;
  try {
    await Promise.race([stage.open().then(behaviours[name]), late]);
  } catch (caught) {
    error = String(caught?.stack ?? caught);
  }
  clearTimeout(deadline);
  const seconds = Math.round(performance.now() - began) / 1000;
  console.log(JSON.stringify({ behaviour: name, error, seconds }));
  await Promise.race([stage.close().catch(() => {}), new Promise((resolve) => setTimeout(resolve, 1000))]);
}

const names = Object.keys(behaviours).filter((name) => wanted.length === 0 || wanted.includes(name));
await Promise.all(names.map(play));
process.exit(0);
