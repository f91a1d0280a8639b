// The stage on which a behaviour of JetStream is played: a connection of its own, names of its own.
//
// Rules: what is waited for comes by itself or is asked for until it is there, within the deadline of the behaviour;
// nothing waits for a fixed time. Behaviours are played side by side, so each uses only names made by `name()`.
import assert from "node:assert/strict";
import { webcrypto } from "node:crypto";

// Older releases of Node.js do not have it, and the clients need it.
globalThis.crypto ??= webcrypto;
const { connect } = await import("@nats-io/transport-node");
const { AckPolicy, jetstream, jetstreamManager } = await import("@nats-io/jetstream");
const { Kvm } = await import("@nats-io/kv");
const { Objm } = await import("@nats-io/obj");

export const DEADLINE_MS = 25_000;
const POLL_MS = 25;

// Files are played one after the other on the same server, each by a process of its own.
const player = process.pid.toString(36).toUpperCase();
let named = 0;

/** Of one behaviour. */
export class Stage {
  constructor(url) {
    this.url = url;
    this.opened = [];
  }

  /** Connect; called once, before the behaviour. */
  async open() {
    this.connection = await this.connect();
    this.js = jetstream(this.connection, { timeout: 10_000 });
    this.manager = await jetstreamManager(this.connection, { timeout: 10_000 });
    this.buckets = new Kvm(this.js);
    this.stores = new Objm(this.js);
    return this;
  }

  async close() {
    await Promise.all(this.opened.filter((one) => !one.isClosed()).map((one) => one.close()));
  }

  /** Another connection, which the stage closes. */
  async connect(options = {}) {
    const patience = { timeout: 10_000, reconnectTimeWait: 50, maxReconnectAttempts: -1 };
    const connection = await connect({ servers: this.url, ...patience, ...options });
    this.opened.push(connection);
    return connection;
  }

  /** A name that nobody else uses, for a stream, a bucket, a store or a subject. */
  name(prefix = "S") {
    named += 1;
    return `${prefix}_${player}_${named}`;
  }

  /** A new stream on `<name>.>`; its name. */
  async stream(config = {}) {
    const name = config.name ?? this.name();
    const subjects = config.mirror || config.sources ? undefined : [`${name}.>`];
    await this.manager.streams.add({ subjects, ...config, name });
    return name;
  }

  /** Publish the numbers from 1 on; `tail` is the end of the subject, or makes it of the number. */
  async publish(stream, count, tail = "a") {
    const subject = typeof tail === "string" ? () => tail : tail;
    for (let number = 1; number <= count; number++) await this.js.publish(`${stream}.${subject(number)}`, String(number));
  }

  /** A new pull consumer. */
  async consumer(stream, config = {}) {
    const wanted = { ack_policy: AckPolicy.Explicit, ...config };
    if (!wanted.name) wanted.durable_name ??= this.name("C");
    const info = await this.manager.consumers.add(stream, wanted);
    return this.js.consumers.get(stream, info.name);
  }

  /** How many messages a stream has. */
  async count(stream) {
    return (await this.manager.streams.info(stream)).state.messages;
  }

  /** Wait until a stream has so many messages. */
  async counted(stream, count) {
    await eventually(async () => (await this.count(stream)) === count);
  }
}

/** The numbers from 1 to `count`. */
export const numbers = (count) => Array.from({ length: count }, (_, index) => index + 1);

/** All that an iterator has until it ends by itself. */
export async function all(iterator) {
  const found = [];
  for await (const one of await iterator) found.push(one);
  return found;
}

/** The first `count` of what an iterator gives. */
export async function take(iterator, count) {
  const found = [];
  if (count === 0) return found;
  for await (const one of await iterator) {
    found.push(one);
    if (found.length === count) break;
  }
  assert.equal(found.length, count, "the iterator ended early");
  return found;
}

/** Ask until the answer is not false, not null and no error; that answer. The deadline is the behaviour's. */
export async function eventually(ask) {
  for (;;) {
    const answer = await ask();
    if (answer !== false && answer !== null && answer !== undefined) return answer;
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/** The next status of an iterator that has one of these types. */
export async function status(messages, ...types) {
  for await (const one of messages.status()) if (types.includes(one.type)) return one;
  throw new assert.AssertionError({ message: `the iterator ended without ${types.join(" or ")}` });
}

/** Let a connection be made anew, with all that it had subscribed to. */
export async function reconnect(connection) {
  const done = (async () => {
    for await (const one of connection.status()) if (one.type === "reconnect") return;
  })();
  await connection.reconnect();
  await done;
  await connection.flush();
}

/** The error that a promise ends with, whose number or text is as said. */
export async function refused(promise, expected) {
  let error;
  try {
    await promise;
  } catch (caught) {
    error = caught;
  }
  assert.ok(error, `expected ${expected}, but nothing was wrong`);
  const codes = [];
  for (let cause = error; cause; cause = cause.cause) codes.push(cause.code, cause.status);
  const text = `${codes.filter(Boolean).join(" ")} ${error.message}`;
  assert.match(text, expected instanceof RegExp ? expected : new RegExp(`(^| )${expected}( |$)`));
  return error;
}
