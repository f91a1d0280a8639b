// Consumers that deliver by themselves, and those that keep an order whatever happens to them.
import assert from "node:assert/strict";
import { all, eventually, numbers, reconnect, status, take } from "./stage.mjs";

const { createInbox, nanos } = await import("@nats-io/transport-node");
const { AckPolicy, DeliverPolicy, jetstream } = await import("@nats-io/jetstream");

const seqs = (messages) => messages.map((message) => message.seq);

/** A push consumer that the client binds to. */
async function push(stage, stream, config = {}) {
  const made = { durable_name: "push", deliver_subject: createInbox(), ack_policy: AckPolicy.Explicit, ...config };
  await stage.manager.consumers.add(stream, made);
  return stage.js.consumers.getPushConsumer(stream, "push");
}

export const behaviours = {
  // --- pushed ---

  async messages_are_pushed_and_acknowledged(stage) {
    const name = await stage.stream();
    await stage.publish(name, 20);
    const consumer = await push(stage, name);
    const messages = await consumer.consume();
    const taken = take(messages, 30);
    await stage.publish(name, 10);
    const found = await taken;
    assert.deepEqual(seqs(found), numbers(30));
    for (const message of found) message.ack();
    await eventually(async () => (await consumer.info()).ack_floor.stream_seq === 30);
  },

  async flow_of_many_messages_is_controlled(stage) {
    const name = await stage.stream();
    const payload = new Uint8Array(1000);
    await Promise.all(numbers(3000).map(() => stage.js.publish(`${name}.a`, payload)));
    const consumer = await push(stage, name, { ack_policy: AckPolicy.None, flow_control: true, idle_heartbeat: nanos(2000) });
    const messages = await consumer.consume();
    let flowed = 0;
    (async () => {
      for await (const one of messages.status()) if (one.type === "flow_control") flowed += 1;
    })();
    assert.deepEqual(seqs(await take(messages, 3000)), numbers(3000));
    assert.ok(flowed > 0, "3 MB came without a request for flow control");
  },

  async idle_consumer_sends_heartbeats(stage) {
    const name = await stage.stream();
    const consumer = await push(stage, name, { idle_heartbeat: nanos(500) });
    const messages = await consumer.consume();
    const taken = take(messages, 1);
    const heard = await status(messages, "heartbeat", "heartbeats_missed");
    assert.deepEqual([heard.type, heard.lastConsumerSequence, heard.lastStreamSequence], ["heartbeat", 0, 0]);
    await stage.publish(name, 1);
    assert.deepEqual(seqs(await taken), [1]);
  },

  async group_shares_what_is_pushed(stage) {
    const name = await stage.stream();
    const deliver_subject = createInbox();
    await push(stage, name, { deliver_subject, deliver_group: "pumps", ack_policy: AckPolicy.None });
    const found = [];
    const members = numbers(3).map(() => 0);
    for (const member of members.keys()) {
      const callback = (_, message) => {
        found.push(message.string());
        members[member] += 1;
      };
      (await stage.connect()).subscribe(deliver_subject, { queue: "pumps", callback });
    }
    await Promise.all(stage.opened.map((connection) => connection.flush()));
    await Promise.all(numbers(300).map((number) => stage.js.publish(`${name}.a`, String(number))));
    await eventually(() => found.length >= 300);
    assert.deepEqual(found.map(Number).sort((one, other) => one - other), numbers(300));
    assert.ok(members.every((count) => count > 0), String(members));
  },

  async nothing_is_pushed_while_nobody_listens(stage) {
    const name = await stage.stream();
    await stage.publish(name, 2);
    const deliver_subject = createInbox();
    const consumer = await push(stage, name, { deliver_subject, ack_policy: AckPolicy.None });
    assert.deepEqual([(await consumer.info()).push_bound ?? false, (await consumer.info()).delivered.stream_seq], [false, 0]);
    const subscription = stage.connection.subscribe(deliver_subject, { max: 2 });
    assert.deepEqual((await take(subscription, 2)).map((one) => one.string()), ["1", "2"]);
  },

  async pushed_message_comes_again_until_it_is_acknowledged(stage) {
    const name = await stage.stream();
    await stage.publish(name, 1);
    const consumer = await push(stage, name, { ack_wait: nanos(500) });
    const found = [];
    for await (const message of await consumer.consume()) {
      found.push([message.seq, message.info.deliveryCount]);
      if (found.length === 1) continue;
      if (found.length === 3) {
        assert.equal(await message.ackAck(), true);
        break;
      }
      message.nak();
    }
    assert.deepEqual(found, [[1, 1], [1, 2], [1, 3]]);
    assert.equal((await consumer.info()).num_ack_pending, 0);
  },

  async replay_takes_its_time(stage) {
    const name = await stage.stream();
    await stage.publish(name, 1);
    const began = Date.now();
    await eventually(() => Date.now() - began > 800);
    await stage.publish(name, 1);
    const times = await Promise.all([1, 2].map(async (seq) => (await stage.manager.streams.getMessage(name, { seq })).time.getTime()));
    const consumer = await push(stage, name, { ack_policy: AckPolicy.None, replay_policy: "original" });
    const asked = Date.now();
    await take(consumer.consume(), 2);
    assert.ok(Date.now() - asked >= 0.9 * (times[1] - times[0]), `after ${Date.now() - asked} ms`);
  },

  // --- in order ---

  async ordered_consumer_gives_all_in_order(stage) {
    const name = await stage.stream();
    await stage.publish(name, 50);
    assert.deepEqual(seqs(await take((await stage.js.consumers.get(name)).consume(), 50)), numbers(50));
    const late = await stage.js.consumers.get(name, { deliver_policy: DeliverPolicy.StartSequence, opt_start_seq: 41 });
    assert.equal((await late.next({ expires: 10_000 })).seq, 41);
    assert.deepEqual(seqs(await all(late.fetch({ max_messages: 4, expires: 10_000 }))), [42, 43, 44, 45]);
  },

  async ordered_consumer_chooses_subjects(stage) {
    const name = await stage.stream();
    await stage.publish(name, 12, (number) => `tank${number % 3}`);
    const consumer = await stage.js.consumers.get(name, { filter_subjects: [`${name}.tank0`, `${name}.tank2`] });
    assert.deepEqual(seqs(await take(consumer.consume(), 8)), [2, 3, 5, 6, 8, 9, 11, 12]);
    const last = await stage.js.consumers.get(name, { deliver_policy: DeliverPolicy.LastPerSubject });
    assert.deepEqual(seqs(await take(last.consume(), 3)), [10, 11, 12]);
  },

  async ordered_consumer_is_made_again_when_it_is_deleted(stage) {
    const name = await stage.stream();
    await stage.publish(name, 5);
    const consumer = await stage.js.consumers.get(name);
    const found = [];
    for await (const message of await consumer.consume({ expires: 2000, idle_heartbeat: 500 })) {
      found.push(message.seq);
      if (found.length === 5) {
        await stage.manager.consumers.delete(name, (await consumer.info(true)).name);
        await stage.publish(name, 3);
      }
      if (found.length === 8) break;
    }
    assert.deepEqual(found, numbers(8));
  },

  async ordered_consumer_goes_on_after_a_new_connection(stage) {
    const name = await stage.stream();
    await stage.publish(name, 3);
    const restless = await stage.connect();
    const consumer = await jetstream(restless).consumers.get(name);
    const found = [];
    for await (const message of await consumer.consume({ expires: 2000, idle_heartbeat: 500 })) {
      found.push(message.seq);
      if (found.length === 3) {
        await reconnect(restless);
        await stage.publish(name, 3);
      }
      if (found.length === 6) break;
    }
    assert.deepEqual(found, numbers(6));
  },

  async ordered_push_consumer_gives_all_in_order(stage) {
    const name = await stage.stream();
    const messages = await (await stage.js.consumers.getPushConsumer(name)).consume();
    const taken = take(messages, 500);
    await Promise.all(numbers(500).map((number) => stage.js.publish(`${name}.a`, String(number))));
    assert.deepEqual(seqs(await taken), numbers(500));
  },
};
