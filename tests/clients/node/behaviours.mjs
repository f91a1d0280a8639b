// What a NATS client may expect of a server, one function per behaviour.
//
//   node behaviours.mjs BEHAVIOUR '{"url": "nats://127.0.0.1:4222", ...}'
//
// The second argument says how to connect: url, and token, user and pass, seed (an nkey) or caFile. A URL of ws:// or wss://
// is dialled as a browser does. Exit status 0 means that the behaviour was seen; otherwise the reason is on stderr.
import assert from "node:assert/strict";
import { webcrypto } from "node:crypto";
import { readFileSync } from "node:fs";

// Browsers have these two; older releases of Node.js do not.
globalThis.crypto ??= webcrypto;
globalThis.WebSocket ??= (await import("ws")).WebSocket;
const { connect, createInbox, headers, nkeyAuthenticator, wsconnect } = await import("@nats-io/transport-node");

const DEADLINE_MS = 15_000;

const access = JSON.parse(process.argv[3] ?? "{}");
const opened = [];

/** A connection as the arguments describe it; `changes` are options on top. */
async function open(changes = {}) {
  const options = { servers: access.url, reconnect: false, timeout: 5000 };
  if (access.token) options.token = access.token;
  if (access.user) Object.assign(options, { user: access.user, pass: access.pass });
  if (access.seed) options.authenticator = nkeyAuthenticator(new TextEncoder().encode(access.seed));
  if (access.caFile) options.tls = { ca: readFileSync(access.caFile, "utf8") };
  Object.assign(options, changes);
  const isWebSocket = /^wss?:/.test(access.url);
  if (isWebSocket) delete options.tls;
  const connection = await (isWebSocket ? wsconnect(options) : connect(options));
  opened.push(connection);
  return connection;
}

/** The first `count` messages of a subscription. */
async function take(subscription, count) {
  const messages = [];
  for await (const message of subscription) {
    messages.push(message);
    if (messages.length === count) break;
  }
  assert.equal(messages.length, count);
  return messages;
}

/** The error that a promise ends with; by the name of its class, as the classes are not all exported. */
async function rejects(promise, name) {
  let error;
  try {
    await promise;
  } catch (caught) {
    error = caught;
  }
  assert.ok(error, `expected ${name}, but nothing was wrong`);
  const names = [];
  for (let cause = error; cause; cause = cause.cause) names.push(cause.constructor.name);
  assert.ok(names.includes(name), `expected ${name}, found ${names.join(" because of ")}: ${error.message}`);
  return error;
}

const behaviours = {
  async info_describes_the_server() {
    const connection = await open({ name: "behaviours" });
    assert.equal(connection.info.proto, 1);
    assert.equal(connection.info.headers, true);
    assert.match(connection.info.version, /^2\.\d+\.\d+/);
    assert.ok(connection.info.max_payload >= 1024);
    assert.ok((await connection.rtt()) >= 0);
  },

  async publish_reaches_literal_and_wildcard_subscribers() {
    const publisher = await open();
    const subscriber = await open();
    const literal = subscriber.subscribe("plant.line1.temperature", { max: 1 });
    const star = subscriber.subscribe("plant.*.temperature", { max: 2 });
    const rest = subscriber.subscribe("plant.>", { max: 3 });
    await subscriber.flush();
    publisher.publish("plant.line1.temperature", "21.5");
    publisher.publish("plant.line2.temperature", "22.5");
    publisher.publish("plant.line2.pump.state", "on");
    assert.deepEqual((await take(literal, 1)).map((m) => m.string()), ["21.5"]);
    assert.deepEqual((await take(star, 2)).map((m) => m.string()), ["21.5", "22.5"]);
    assert.deepEqual((await take(rest, 3)).map((m) => m.subject), [
      "plant.line1.temperature", "plant.line2.temperature", "plant.line2.pump.state",
    ]);
  },

  async payload_arrives_byte_for_byte_from_empty_to_half_a_mebibyte() {
    const connection = await open();
    for (const size of [0, 1, 127, 65_536, 524_288]) {
      const payload = new Uint8Array(size).map((_, i) => (i * 31 + size) & 0xff);
      const subscription = connection.subscribe(`size.${size}`, { max: 1 });
      connection.publish(`size.${size}`, payload);
      const [message] = await take(subscription, 1);
      assert.equal(Buffer.compare(message.data, payload), 0, `payload of ${size} bytes`);
    }
  },

  async messages_of_one_publisher_arrive_in_order() {
    const publisher = await open();
    const subscriber = await open();
    const subscription = subscriber.subscribe("order", { max: 20_000 });
    await subscriber.flush();
    for (let i = 0; i < 20_000; i++) publisher.publish("order", String(i));
    let expected = 0;
    for await (const message of subscription) assert.equal(message.string(), String(expected++));
    assert.equal(expected, 20_000);
  },

  async request_gets_the_reply_of_another_connection() {
    const service = await open();
    const requester = await open();
    service.subscribe("double", { callback: (_, m) => m.respond(String(2 * Number(m.string()))) });
    await service.flush();
    const replies = await Promise.all([1, 2, 3, 4].map((n) => requester.request("double", String(n), { timeout: 5000 })));
    assert.deepEqual(replies.map((m) => m.string()), ["2", "4", "6", "8"]);
    const lone = await requester.request("double", "21", { timeout: 5000, noMux: true, reply: createInbox() });
    assert.equal(lone.string(), "42");
  },

  async request_for_many_gets_every_reply() {
    const requester = await open();
    for (let i = 0; i < 3; i++) {
      const service = await open();
      service.subscribe("who", { callback: (_, m) => m.respond(String(i)) });
      await service.flush();
    }
    const replies = [];
    for await (const m of await requester.requestMany("who", "", { strategy: "count", maxMessages: 3, maxWait: 5000 })) {
      replies.push(m.string());
    }
    assert.deepEqual(replies.sort(), ["0", "1", "2"]);
  },

  async request_without_a_responder_fails_at_once() {
    const connection = await open();
    const started = Date.now();
    await rejects(connection.request("nobody.there", "", { timeout: 10_000 }), "NoRespondersError");
    assert.ok(Date.now() - started < 5000, "the answer is not a timeout");
  },

  async queue_group_gets_each_message_once_and_shares_the_work() {
    const publisher = await open();
    const seen = [];
    const counts = [0, 0, 0];
    const members = await Promise.all([0, 1, 2].map(() => open()));
    members.forEach((member, i) =>
      member.subscribe("work", { queue: "workers", callback: (_, m) => { counts[i]++; seen.push(m.string()); } })
    );
    const watcher = await open();
    const watched = watcher.subscribe("work", { max: 600 });
    await Promise.all([...members, watcher].map((c) => c.flush()));
    for (let i = 0; i < 600; i++) publisher.publish("work", String(i));
    await take(watched, 600);
    await publisher.flush();
    await Promise.all(members.map((member) => member.flush()));
    assert.equal(new Set(seen).size, 600);
    assert.equal(seen.length, 600);
    assert.ok(counts.every((count) => count > 100), `unfair: ${counts}`);
  },

  async headers_arrive_with_all_their_values() {
    const connection = await open();
    const subscription = connection.subscribe("annotated", { max: 2 });
    const block = headers();
    block.append("Trace", "a");
    block.append("Trace", "b");
    block.set("Content-Type", "text/plain; charset=utf-8");
    connection.publish("annotated", "with", { headers: block });
    connection.publish("annotated", "without");
    const [annotated, plain] = await take(subscription, 2);
    assert.deepEqual(annotated.headers.values("Trace"), ["a", "b"]);
    assert.equal(annotated.headers.get("Content-Type"), "text/plain; charset=utf-8");
    assert.equal(annotated.string(), "with");
    assert.equal(plain.headers, undefined);
  },

  async subscription_with_a_maximum_ends_by_itself() {
    const connection = await open();
    const subscription = connection.subscribe("limited", { max: 2 });
    for (let i = 0; i < 5; i++) connection.publish("limited", String(i));
    const got = [];
    for await (const message of subscription) got.push(message.string());
    assert.deepEqual(got, ["0", "1"]);
  },

  async unsubscribed_subject_is_delivered_no_more() {
    const connection = await open();
    const got = [];
    const subscription = connection.subscribe("stopped", { callback: (_, m) => got.push(m.string()) });
    connection.publish("stopped", "before");
    await connection.flush();
    subscription.unsubscribe();
    connection.publish("stopped", "after");
    await connection.flush();
    assert.deepEqual(got, ["before"]);
  },

  async connection_without_echo_does_not_hear_itself() {
    const connection = await open({ noEcho: true });
    const other = await open();
    const got = [];
    connection.subscribe("echo", { callback: (_, m) => got.push(m.string()) });
    await connection.flush();
    connection.publish("echo", "own");
    await connection.flush();
    other.publish("echo", "foreign");
    await other.flush();
    await connection.flush();
    assert.deepEqual(got, ["foreign"]);
  },

  async drained_connection_delivers_what_was_sent_and_closes() {
    const publisher = await open();
    const drained = await open();
    let count = 0;
    drained.subscribe("drain", { callback: () => count++ });
    await drained.flush();
    for (let i = 0; i < 1000; i++) publisher.publish("drain");
    await publisher.flush();
    await drained.drain();
    assert.equal(count, 1000);
    assert.ok(drained.isClosed());
  },

  async drained_subscription_delivers_what_was_sent_and_ends() {
    const connection = await open();
    let count = 0;
    const subscription = connection.subscribe("drain.one", { callback: () => count++ });
    for (let i = 0; i < 100; i++) connection.publish("drain.one");
    await subscription.drain();
    assert.equal(count, 100);
    assert.ok(!connection.isClosed());
  },

  async right_credentials_are_let_in() {
    const connection = await open();
    const subscription = connection.subscribe("allowed.in", { max: 1 });
    connection.publish("allowed.in", "hello");
    assert.equal((await take(subscription, 1))[0].string(), "hello");
  },

  async wrong_credentials_are_refused() {
    await rejects(open(), "AuthorizationError");
  },

  async forbidden_subscription_is_refused_and_the_connection_lives() {
    const connection = await open();
    const failed = new Promise((resolve) => connection.subscribe("forbidden.in", { callback: (error) => resolve(error) }));
    assert.equal((await failed).constructor.name, "PermissionViolationError");
    const subscription = connection.subscribe("allowed.in", { max: 1 });
    connection.publish("allowed.in", "still here");
    assert.equal((await take(subscription, 1))[0].string(), "still here");
  },

  async certificate_of_an_unknown_authority_is_refused_by_the_client() {
    const error = await rejects(open({ tls: {} }), "Error");
    assert.match(`${error.message} ${error.cause?.message}`, /certificate/);
  },

  async lame_duck_server_tells_its_clients() {
    const connection = await open();
    console.log("connected"); // The test now asks the server to leave.
    for await (const status of connection.status()) {
      if (status.type === "ldm") return;
    }
    assert.fail("the connection ended without a word about lame duck mode");
  },
};

const behaviour = behaviours[process.argv[2]];
if (behaviour === undefined) {
  console.error(`unknown behaviour ${process.argv[2]}; known: ${Object.keys(behaviours).join(" ")}`);
  process.exit(2);
}
setTimeout(() => {
  console.error(`${process.argv[2]}: not done within ${DEADLINE_MS} ms`);
  process.exit(1);
}, DEADLINE_MS).unref();
try {
  await behaviour();
  await Promise.all(opened.filter((connection) => !connection.isClosed()).map((connection) => connection.close()));
} catch (error) {
  console.error(error);
  process.exit(1);
}
process.exit(0);
