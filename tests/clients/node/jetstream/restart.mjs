// What a client goes through when its server is away for a while. The test ends and starts the server.
import assert from "node:assert/strict";
import { eventually, numbers } from "./stage.mjs";

const { nanos } = await import("@nats-io/transport-node");

export const behaviours = {
  async consumption_watching_and_publishing_go_on(stage) {
    const name = await stage.stream();
    const consumer = await stage.consumer(name, { durable_name: "worker", ack_wait: nanos(2000) });
    const values = await stage.buckets.create(stage.name("B"));
    const [consumed, watched] = [new Set(), new Set()];
    (async () => {
      for await (const message of await consumer.consume({ expires: 2000, idle_heartbeat: 500 })) {
        consumed.add(message.string());
        message.ack();
      }
    })();
    (async () => {
      for await (const entry of await values.watch()) watched.add(entry.string());
    })();
    const half = async (first) => {
      for (const number of numbers(50)) {
        const text = String(first + number);
        // Whoever does not hear that a message is stored publishes it again: the server knows it by its number.
        await eventually(() => stage.js.publish(`${name}.a`, text, { msgID: text }).catch(() => null));
      }
      await eventually(() => values.put("key", String(first)).catch(() => null));
      await eventually(() => consumed.size === first + 50 && watched.has(String(first)));
    };
    await half(0);
    console.log("halfway"); // The test now ends the server, and starts it again on the same data.
    for await (const status of stage.connection.status()) if (status.type === "reconnect") break;
    await half(50);
    assert.equal(await stage.count(name), 100);
    assert.deepEqual([...consumed].map(Number).sort((one, other) => one - other), numbers(100));
  },
};
