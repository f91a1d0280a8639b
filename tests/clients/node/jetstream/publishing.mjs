// What a publisher is told: where its message is, that it was there before, or why it is not stored.
import assert from "node:assert/strict";
import { numbers, refused } from "./stage.mjs";

const { headers, nanos } = await import("@nats-io/transport-node");
const { startFastIngest } = await import("@nats-io/jetstream/internal");

export const behaviours = {
  async publisher_is_told_the_stream_and_the_sequence(stage) {
    const name = await stage.stream();
    const acks = [];
    for (const number of numbers(3)) acks.push(await stage.js.publish(`${name}.a`, String(number)));
    assert.deepEqual(acks.map((ack) => [ack.stream, ack.seq, ack.duplicate]), [[name, 1, false], [name, 2, false], [name, 3, false]]);
  },

  async publisher_without_a_stream_is_told_at_once(stage) {
    await refused(stage.js.publish(`${stage.name("nowhere")}.a`, "lost"), /jetstream is not enabled|no responders|503/i);
  },

  async many_messages_are_confirmed_without_waiting_for_each(stage) {
    const name = await stage.stream();
    const acks = await Promise.all(numbers(2000).map((number) => stage.js.publish(`${name}.a`, String(number))));
    assert.deepEqual(acks.map((ack) => ack.seq), numbers(2000));
    assert.equal((await stage.manager.streams.getMessage(name, { seq: 2000 })).string(), "2000");
  },

  async payload_and_headers_are_stored_byte_for_byte(stage) {
    const name = await stage.stream();
    for (const size of [0, 1, 65_536, 524_288]) {
      const payload = new Uint8Array(size).map((_, place) => (place * 7 + size) & 0xff);
      const made = headers();
      made.set("Size", String(size));
      const { seq } = await stage.js.publish(`${name}.a`, payload, { headers: made });
      const message = await stage.manager.streams.getMessage(name, { seq });
      assert.equal(Buffer.compare(message.data, payload), 0, `payload of ${size} bytes`);
      assert.equal(message.header.get("Size"), String(size));
    }
  },

  async message_that_comes_twice_is_stored_once(stage) {
    const name = await stage.stream();
    assert.equal((await stage.js.publish(`${name}.a`, "1", { msgID: "first" })).duplicate, false);
    const again = await stage.js.publish(`${name}.a`, "1", { msgID: "first" });
    assert.deepEqual([again.duplicate, again.seq, await stage.count(name)], [true, 1, 1]);
    assert.equal((await stage.js.publish(`${name}.a`, "2", { msgID: "second" })).seq, 2);
  },

  async message_that_comes_twice_is_new_after_the_window(stage) {
    const name = await stage.stream({ duplicate_window: nanos(500) });
    await stage.js.publish(`${name}.a`, "1", { msgID: "first" });
    let again;
    do again = await stage.js.publish(`${name}.a`, "1", { msgID: "first" });
    while (again.duplicate);
    assert.equal(again.seq, 2);
  },

  async message_is_stored_only_if_the_stream_is_as_expected(stage) {
    const name = await stage.stream();
    const publish = (expect, options = {}) => stage.js.publish(`${name}.a`, "1", { expect, ...options });
    assert.equal((await publish({ streamName: name, lastSequence: 0 }, { msgID: "first" })).seq, 1);
    await refused(publish({ streamName: "another" }), 10060);
    await refused(publish({ lastSequence: 7 }), 10071);
    await refused(publish({ lastMsgID: "second" }), 10070);
    await refused(publish({ lastSubjectSequence: 7 }), 10071);
    await refused(publish({ lastSubjectSequence: 7, lastSubjectSequenceSubject: `${name}.b` }), 10071);
    assert.equal(await stage.count(name), 1);
    await publish({ lastSequence: 1, lastMsgID: "first", lastSubjectSequence: 1 });
    await publish({ lastSubjectSequence: 0, lastSubjectSequenceSubject: `${name}.b` });
    assert.equal(await stage.count(name), 3);
  },

  async one_of_many_who_expect_the_same_wins(stage) {
    const name = await stage.stream();
    const all = numbers(20).map((number) => stage.js.publish(`${name}.a`, String(number), { expect: { lastSubjectSequence: 0 } }));
    const outcomes = await Promise.allSettled(all);
    assert.equal(outcomes.filter((one) => one.status === "fulfilled").length, 1);
    assert.equal(await stage.count(name), 1);
  },

  async batch_is_stored_as_one(stage) {
    const name = await stage.stream({ allow_atomic: true });
    const batch = await stage.js.startBatch(`${name}.a`, "1");
    batch.add(`${name}.b`, "2");
    batch.add(`${name}.a`, "3");
    assert.equal(await stage.count(name), 0);
    const ack = await batch.commit(`${name}.b`, "4");
    assert.deepEqual([ack.stream, ack.count, ack.seq, await stage.count(name)], [name, 4, 4, 4]);
  },

  async batch_of_which_one_message_is_refused_is_not_stored(stage) {
    const name = await stage.stream({ allow_atomic: true });
    await stage.publish(name, 1);
    const batch = await stage.js.startBatch(`${name}.b`, "1");
    // The client has no option for it that reaches the server, and does not pass on what the server says.
    const expected = headers();
    expected.set("Nats-Expected-Last-Subject-Sequence", "9");
    await refused(batch.commit(`${name}.a`, "2", { headers: expected }), /number of published messages/);
    assert.equal(await stage.count(name), 1);
  },

  async batch_for_a_stream_without_batches_is_refused(stage) {
    const name = await stage.stream();
    await refused(stage.js.startBatch(`${name}.a`, "1"), 10174);
    assert.equal(await stage.count(name), 0);
  },

  async fast_batch_is_paced_and_confirmed_at_its_end(stage) {
    const name = await stage.stream({ allow_batched: true });
    const batch = await startFastIngest(stage.connection, `${name}.a`, "1", { allowGaps: false, ackInterval: 10 });
    for (const number of numbers(98)) await batch.add(`${name}.a`, String(number + 1));
    const ack = await batch.last(`${name}.a`, "100");
    assert.deepEqual([ack.stream, ack.count, ack.seq, await stage.count(name)], [name, 100, 100, 100]);
  },
};
