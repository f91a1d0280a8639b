// Consumers that are asked for messages: fetched, consumed, acknowledged in every way.
import assert from "node:assert/strict";
import { all, eventually, numbers, reconnect, refused, status, take } from "./stage.mjs";

const { nanos } = await import("@nats-io/transport-node");
const { AckPolicy, DeliverPolicy, jetstream, RetentionPolicy } = await import("@nats-io/jetstream");

const seqs = (messages) => messages.map((message) => message.seq);

export const behaviours = {
  // --- management ---

  async consumer_is_made_described_listed_updated_and_deleted(stage) {
    const name = await stage.stream();
    await stage.publish(name, 3);
    const consumer = await stage.consumer(name, { durable_name: "worker", description: "pump" });
    const info = await consumer.info();
    assert.deepEqual([info.name, info.stream_name, info.num_pending, info.config.description], ["worker", name, 3, "pump"]);
    assert.deepEqual((await all(stage.manager.consumers.list(name))).map((one) => one.name), ["worker"]);
    await stage.manager.consumers.update(name, "worker", { max_ack_pending: 7 });
    assert.equal((await stage.manager.consumers.info(name, "worker")).config.max_ack_pending, 7);
    assert.equal(await stage.manager.consumers.delete(name, "worker"), true);
    await refused(stage.manager.consumers.info(name, "worker"), 10014);
  },

  async unused_consumer_goes_away(stage) {
    const name = await stage.stream();
    const { name: unused } = await stage.manager.consumers.add(name, { inactive_threshold: nanos(500) });
    await stage.consumer(name, { durable_name: "stays" });
    await eventually(async () => !(await all(stage.manager.consumers.list(name))).some((one) => one.name === unused));
    assert.deepEqual((await all(stage.manager.consumers.list(name))).map((one) => one.name), ["stays"]);
  },

  async paused_consumer_delivers_when_it_is_resumed(stage) {
    const name = await stage.stream();
    await stage.publish(name, 1);
    const consumer = await stage.consumer(name, { durable_name: "worker" });
    const until = new Date(Date.now() + 600_000);
    assert.equal((await stage.manager.consumers.pause(name, "worker", until)).paused, true);
    assert.equal(await consumer.next({ expires: 1000 }), null);
    assert.equal((await stage.manager.consumers.resume(name, "worker")).paused, false);
    assert.equal((await consumer.next({ expires: 10_000 })).seq, 1);
  },

  async consumer_begins_again_where_it_is_told_to(stage) {
    const name = await stage.stream();
    await stage.publish(name, 5);
    const consumer = await stage.consumer(name, { durable_name: "worker" });
    for (const message of await take(consumer.fetch({ max_messages: 5 }), 5)) await message.ackAck();
    const stream = await stage.js.streams.get(name);
    assert.equal((await stream.resetConsumer("worker", 3)).reset_seq, 3);
    assert.deepEqual(seqs(await take(consumer.fetch({ max_messages: 3 }), 3)), [3, 4, 5]);
  },

  // --- asking ---

  async messages_are_fetched_in_order_with_what_is_left(stage) {
    const name = await stage.stream();
    await stage.publish(name, 25);
    const consumer = await stage.consumer(name);
    const found = await all(consumer.fetch({ max_messages: 10, expires: 10_000 }));
    assert.deepEqual(seqs(found), numbers(10));
    assert.deepEqual(found.map((one) => one.info.pending), numbers(10).map((number) => 25 - number));
    assert.deepEqual(found.map((one) => one.string()), numbers(10).map(String));
    for (const message of found) message.ack();
    const isDone = (info) => info.ack_floor.stream_seq === 10 && info.num_pending === 15;
    await eventually(async () => isDone(await consumer.info()));
  },

  async fetch_that_is_not_filled_ends_in_time(stage) {
    const name = await stage.stream();
    await stage.publish(name, 2);
    const consumer = await stage.consumer(name);
    const began = Date.now();
    assert.deepEqual(seqs(await all(consumer.fetch({ max_messages: 9, expires: 1000 }))), [1, 2]);
    assert.ok(Date.now() - began >= 900);
  },

  async fetch_is_limited_by_bytes(stage) {
    const name = await stage.stream();
    for (const _ of numbers(9)) await stage.js.publish(`${name}.a`, new Uint8Array(1000));
    const consumer = await stage.consumer(name);
    const found = [];
    try {
      for await (const message of await consumer.fetch({ max_bytes: 3500, expires: 2000 })) found.push(message.seq);
    } catch (error) {
      // The client passes the server's word on that the next one is too large.
      assert.match(error.message, /exceeds maxbytes/i);
    }
    assert.deepEqual(found, [1, 2, 3]);
  },

  async who_does_not_wait_is_told_that_there_is_nothing(stage) {
    const name = await stage.stream();
    const consumer = await stage.consumer(name, { durable_name: "worker" });
    const request = `$JS.API.CONSUMER.MSG.NEXT.${name}.worker`;
    const answer = await stage.connection.request(request, JSON.stringify({ batch: 5, no_wait: true }), { timeout: 10_000 });
    assert.deepEqual([answer.headers.code, answer.headers.description], [404, "No Messages"]);
    assert.equal((await consumer.info()).num_waiting, 0);
  },

  async next_waits_for_a_message_that_comes_later(stage) {
    const name = await stage.stream();
    const consumer = await stage.consumer(name);
    assert.equal(await consumer.next({ expires: 1000 }), null);
    const next = consumer.next({ expires: 10_000 });
    await eventually(async () => (await consumer.info()).num_waiting === 1);
    await stage.publish(name, 1);
    const message = await next;
    assert.equal(message.string(), "1");
    assert.equal(await message.ackAck(), true);
    assert.equal((await consumer.info()).num_ack_pending, 0);
  },

  async more_requests_than_a_hundred_are_all_served(stage) {
    const name = await stage.stream();
    const consumer = await stage.consumer(name);
    const waiting = numbers(150).map(() => consumer.next({ expires: 15_000 }));
    await eventually(async () => (await consumer.info()).num_waiting === 150);
    await Promise.all(numbers(150).map((number) => stage.js.publish(`${name}.a`, String(number))));
    assert.deepEqual(seqs(await Promise.all(waiting)).sort((one, other) => one - other), numbers(150));
  },

  async thousands_are_consumed_and_acknowledged(stage) {
    const name = await stage.stream();
    const consumer = await stage.consumer(name);
    const messages = await consumer.consume({ max_messages: 300 });
    const published = Promise.all(numbers(3000).map((number) => stage.js.publish(`${name}.a`, String(number))));
    let expected = 0;
    for await (const message of messages) {
      assert.equal(message.seq, ++expected);
      message.ack();
      if (expected === 3000) break;
    }
    await published;
    await eventually(async () => (await consumer.info()).num_ack_pending === 0);
    assert.equal((await consumer.info()).num_redelivered, 0);
  },

  async work_is_shared_by_those_who_consume_together(stage) {
    const name = await stage.stream();
    const consumer = await stage.consumer(name, { durable_name: "worker" });
    const other = await jetstream(await stage.connect()).consumers.get(name, "worker");
    const found = [];
    const consume = async (source) => {
      const messages = await source.consume({ max_messages: 10 });
      for await (const message of messages) {
        found.push(message.seq);
        message.ack();
        if (found.length >= 200) messages.stop();
      }
    };
    const both = [consume(consumer), consume(other)];
    await Promise.all(numbers(200).map((number) => stage.js.publish(`${name}.a`, String(number))));
    await Promise.race(both);
    assert.deepEqual(found.sort((one, next) => one - next), numbers(200));
  },

  async consumption_hears_heartbeats_while_nothing_comes(stage) {
    const name = await stage.stream();
    const consumer = await stage.consumer(name);
    const messages = await consumer.consume({ max_messages: 10, expires: 10_000, idle_heartbeat: 500 });
    const heard = status(messages, "heartbeat", "heartbeats_missed");
    const taken = take(messages, 3);
    assert.equal((await heard).type, "heartbeat");
    await stage.publish(name, 3);
    assert.deepEqual(seqs(await taken), [1, 2, 3]);
  },

  async consumption_hears_that_its_consumer_was_deleted(stage) {
    const name = await stage.stream();
    const consumer = await stage.consumer(name, { durable_name: "worker" });
    const messages = await consumer.consume({ expires: 5000, abort_on_missing_resource: true });
    const heard = status(messages, "consumer_deleted", "consumer_not_found");
    // Nothing is asked for before somebody takes what comes.
    const ended = assert.rejects(all(messages), /consumer deleted/);
    await eventually(async () => (await consumer.info()).num_waiting === 1);
    await stage.manager.consumers.delete(name, "worker");
    await heard;
    await ended;
  },

  async consumption_goes_on_after_a_new_connection(stage) {
    const name = await stage.stream();
    // What was sent to the connection that went is not acknowledged, and comes again.
    await stage.consumer(name, { durable_name: "worker", ack_wait: nanos(1000) });
    const restless = await stage.connect();
    const messages = await (await jetstream(restless).consumers.get(name, "worker")).consume({ expires: 2000 });
    const found = new Set();
    const done = (async () => {
      for await (const message of messages) {
        found.add(message.seq);
        message.ack();
        if (found.size === 6) break;
      }
    })();
    for (const round of numbers(3)) {
      await stage.publish(name, 2);
      await eventually(() => found.size === 2 * round);
      if (round < 3) await reconnect(restless);
    }
    await done;
    assert.deepEqual([...found].sort(), numbers(6));
  },

  // --- acknowledgements ---

  async refused_message_comes_again_and_is_counted(stage) {
    const name = await stage.stream();
    await stage.publish(name, 1);
    const consumer = await stage.consumer(name);
    const first = await consumer.next({ expires: 10_000 });
    assert.deepEqual([first.info.deliveryCount, first.redelivered], [1, false]);
    first.nak();
    const second = await consumer.next({ expires: 10_000 });
    assert.deepEqual([second.seq, second.info.deliveryCount, second.redelivered], [1, 2, true]);
    assert.equal((await consumer.info()).num_redelivered, 1);
    await second.ackAck();
    assert.equal((await consumer.info()).num_redelivered, 0);
  },

  async refused_message_comes_again_after_a_while(stage) {
    const name = await stage.stream();
    await stage.publish(name, 1);
    const consumer = await stage.consumer(name);
    const message = await consumer.next({ expires: 10_000 });
    const began = Date.now();
    message.nak(1000);
    assert.equal((await consumer.next({ expires: 10_000 })).info.deliveryCount, 2);
    assert.ok(Date.now() - began >= 900);
  },

  async terminated_message_does_not_come_again(stage) {
    const name = await stage.stream();
    await stage.publish(name, 2);
    const told = stage.connection.subscribe(`$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.${name}.worker`, { max: 1 });
    const consumer = await stage.consumer(name, { durable_name: "worker", ack_wait: nanos(500) });
    (await consumer.next({ expires: 10_000 })).term("unreadable");
    const [advisory] = await take(told, 1);
    assert.deepEqual([advisory.json().stream_seq, advisory.json().reason], [1, "unreadable"]);
    for (const count of [1, 2]) {
      const message = await consumer.next({ expires: 10_000 });
      assert.deepEqual([message.seq, message.info.deliveryCount], [2, count]);
    }
  },

  async message_comes_again_when_nobody_works_on_it(stage) {
    const name = await stage.stream();
    await stage.publish(name, 1);
    const consumer = await stage.consumer(name, { ack_wait: nanos(2000) });
    const message = await consumer.next({ expires: 10_000 });
    const again = consumer.next({ expires: 15_000 });
    const began = Date.now();
    let worked = began;
    await eventually(() => {
      worked = Date.now();
      message.working();
      return worked - began > 2500;
    });
    assert.equal((await again).info.deliveryCount, 2);
    assert.ok(Date.now() - worked >= 1900, `after ${Date.now() - worked} ms`);
  },

  async message_that_came_too_often_is_given_up(stage) {
    const name = await stage.stream();
    await stage.publish(name, 1);
    const told = stage.connection.subscribe(`$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.${name}.worker`, { max: 1 });
    const consumer = await stage.consumer(name, { durable_name: "worker", max_deliver: 2, ack_wait: nanos(600_000) });
    for (const _ of numbers(2)) (await consumer.next({ expires: 10_000 })).nak();
    const next = consumer.next({ expires: 10_000 });
    const [advisory] = await take(told, 1);
    assert.deepEqual([advisory.json().stream_seq, advisory.json().deliveries], [1, 2]);
    await stage.publish(name, 1);
    assert.equal((await next).seq, 2);
  },

  async backoff_makes_each_delivery_later(stage) {
    const name = await stage.stream();
    await stage.publish(name, 1);
    const consumer = await stage.consumer(name, { max_deliver: 4, backoff: [nanos(300), nanos(1200)] });
    const began = Date.now();
    for (const waited_ms of [0, 300, 1500]) {
      assert.equal((await consumer.next({ expires: 10_000 })).seq, 1);
      assert.ok(Date.now() - began >= 0.9 * waited_ms, `after ${Date.now() - began} ms`);
    }
  },

  async too_many_without_acknowledgement_hold_the_rest_back(stage) {
    const name = await stage.stream();
    await stage.publish(name, 5);
    const consumer = await stage.consumer(name, { max_ack_pending: 2 });
    const found = await all(consumer.fetch({ max_messages: 5, expires: 1000 }));
    assert.deepEqual(seqs(found), [1, 2]);
    await found[1].ackAck();
    assert.equal((await consumer.next({ expires: 10_000 })).seq, 3);
  },

  async acknowledgement_of_one_covers_all_before_it(stage) {
    const name = await stage.stream();
    await stage.publish(name, 5);
    const consumer = await stage.consumer(name, { ack_policy: AckPolicy.All });
    const found = await take(consumer.fetch({ max_messages: 5 }), 5);
    await found[3].ackAck();
    const info = await consumer.info();
    assert.deepEqual([info.num_ack_pending, info.ack_floor.stream_seq], [1, 4]);
  },

  async nobody_acknowledges_where_it_is_not_wanted(stage) {
    const name = await stage.stream();
    await stage.publish(name, 5);
    const consumer = await stage.consumer(name, { ack_policy: AckPolicy.None });
    await take(consumer.fetch({ max_messages: 5 }), 5);
    const info = await consumer.info();
    assert.deepEqual([info.num_ack_pending, info.num_pending, info.delivered.stream_seq], [0, 0, 5]);
  },

  // --- what is delivered ---

  async filters_choose_and_count(stage) {
    const name = await stage.stream();
    await stage.publish(name, 12, (number) => `tank${number % 4}`);
    const consumer = await stage.consumer(name, { filter_subjects: [`${name}.tank1`, `${name}.tank3`] });
    assert.equal((await consumer.info()).num_pending, 6);
    assert.deepEqual(seqs(await take(consumer.fetch({ max_messages: 6 }), 6)), [1, 3, 5, 7, 9, 11]);
    assert.equal((await consumer.info()).num_pending, 0);
  },

  async consumer_begins_where_its_policy_says(stage) {
    const name = await stage.stream();
    await stage.publish(name, 4, (number) => `tank${number % 2}`);
    const { time } = await stage.manager.streams.getMessage(name, { seq: 3 });
    const first = async (config) => (await (await stage.consumer(name, config)).next({ expires: 1000 }))?.seq;
    const opt_start_time = time.toISOString();
    assert.equal(await first({ deliver_policy: DeliverPolicy.All }), 1);
    assert.equal(await first({ deliver_policy: DeliverPolicy.Last }), 4);
    assert.equal(await first({ deliver_policy: DeliverPolicy.New }), undefined);
    assert.equal(await first({ deliver_policy: DeliverPolicy.StartSequence, opt_start_seq: 2 }), 2);
    assert.ok([1, 2, 3].includes(await first({ deliver_policy: DeliverPolicy.StartTime, opt_start_time })));
    assert.equal(await first({ deliver_policy: DeliverPolicy.LastPerSubject, filter_subject: `${name}.*` }), 3);
  },

  async payload_is_left_out_where_headers_are_enough(stage) {
    const name = await stage.stream();
    await stage.js.publish(`${name}.a`, "12345");
    const message = await (await stage.consumer(name, { headers_only: true })).next({ expires: 10_000 });
    assert.deepEqual([message.data.length, message.headers.get("Nats-Msg-Size")], [0, "5"]);
  },

  async work_queue_forgets_what_is_done(stage) {
    const name = await stage.stream({ retention: RetentionPolicy.Workqueue });
    await stage.publish(name, 3);
    const consumer = await stage.consumer(name);
    await refused(stage.manager.consumers.add(name, { durable_name: "second", ack_policy: AckPolicy.Explicit }), 10099);
    await (await consumer.next({ expires: 10_000 })).ackAck();
    await stage.counted(name, 2);
    (await consumer.next({ expires: 10_000 })).term();
    await stage.counted(name, 1);
  },

  async message_is_kept_while_somebody_is_interested(stage) {
    const name = await stage.stream({ retention: RetentionPolicy.Interest });
    await stage.publish(name, 2);
    await stage.counted(name, 0);
    const [one, other] = [await stage.consumer(name), await stage.consumer(name)];
    await stage.publish(name, 1);
    await (await one.next({ expires: 10_000 })).ackAck();
    assert.equal(await stage.count(name), 1);
    await (await other.next({ expires: 10_000 })).ackAck();
    await stage.counted(name, 0);
  },

  // --- groups ---

  async overflow_is_served_while_much_is_pending(stage) {
    const name = await stage.stream();
    await stage.publish(name, 5);
    const consumer = await stage.consumer(name, { priority_groups: ["spare"], priority_policy: "overflow" });
    const fetch = (min_pending) => all(consumer.fetch({ max_messages: 5, expires: 1000, group: "spare", min_pending }));
    assert.deepEqual(seqs(await fetch(100)), []);
    assert.deepEqual(seqs(await fetch(3)), [1, 2, 3]);
  },

  async pinned_client_is_served_until_it_is_unpinned(stage) {
    const name = await stage.stream();
    const config = { durable_name: "worker", priority_groups: ["main"], priority_policy: "pinned_client" };
    const consumer = await stage.consumer(name, { ...config, priority_timeout: nanos(600_000) });
    const found = { first: 0, second: 0 };
    const consume = async (who, source) => {
      const messages = await source.consume({ group: "main", max_messages: 10, expires: 10_000 });
      (async () => {
        for await (const message of messages) {
          found[who] += 1;
          message.ack();
        }
      })();
    };
    await consume("first", consumer);
    await stage.publish(name, 1);
    await eventually(() => found.first === 1);
    await consume("second", await stage.js.consumers.get(name, "worker"));
    await eventually(async () => (await consumer.info()).num_waiting === 2);
    await stage.publish(name, 5);
    await eventually(() => found.first === 6);
    const [group] = (await consumer.info()).priority_groups;
    assert.ok(group.group === "main" && group.pinned_client_id);
    await stage.manager.consumers.unpin(name, "worker", "main");
    await eventually(async () => {
      await stage.publish(name, 1);
      return found.second > 0;
    });
  },
};
