// Buckets of keys and values, which are streams by another name.
import assert from "node:assert/strict";
import { all, eventually, numbers, reconnect, refused, take } from "./stage.mjs";

const { StorageType } = await import("@nats-io/jetstream");
const { Kvm, KvWatchInclude } = await import("@nats-io/kv");

const bucket = (stage, options = {}) => stage.buckets.create(stage.name("B"), options);
const shown = (entry) => `${entry.operation} ${entry.key} ${entry.string()}`.trim();

/** What an iterator gives, into a list that grows. */
function gather(iterator) {
  const found = [];
  (async () => {
    for await (const one of iterator) found.push(shown(one));
  })();
  return found;
}

export const behaviours = {
  async value_is_put_read_deleted_and_purged(stage) {
    const values = await bucket(stage, { history: 5 });
    assert.equal(await values.put("tank.level", "1"), 1);
    assert.equal(await values.put("tank.level", "2"), 2);
    const entry = await values.get("tank.level");
    assert.deepEqual([shown(entry), entry.revision], ["PUT tank.level 2", 2]);
    assert.equal((await values.get("tank.level", { revision: 1 })).string(), "1");
    assert.equal(await values.get("nothing"), null);
    await values.delete("tank.level");
    assert.equal((await values.get("tank.level")).operation, "DEL");
    assert.equal((await values.status()).values, 3);
    await values.purge("tank.level");
    assert.equal((await values.get("tank.level")).operation, "PURGE");
    assert.equal((await values.status()).values, 1);
  },

  async value_is_binary_and_large(stage) {
    const values = await bucket(stage);
    const value = new Uint8Array(300_000).map((_, place) => (place * 13) & 0xff);
    await values.put("blob", value);
    assert.equal(Buffer.compare((await values.get("blob")).value, value), 0);
  },

  async value_is_created_once(stage) {
    const values = await bucket(stage);
    const first = await values.create("key", "1");
    await refused(values.create("key", "2"), /10071|wrong last sequence/);
    await values.delete("key");
    assert.ok((await values.create("key", "3")) > first);
    await values.purge("key");
    assert.equal(shown(await values.get("key")), "PURGE key");
    await values.create("key", "4");
    assert.equal((await values.get("key")).string(), "4");
  },

  async value_is_updated_only_from_its_last_revision(stage) {
    const values = await bucket(stage);
    const first = await values.put("key", "1");
    const second = await values.update("key", "2", first);
    await refused(values.update("key", "3", first), 10071);
    await refused(values.delete("key", { previousSeq: first }), 10071);
    await refused(values.put("key", "3", { previousSeq: first }), 10071);
    await values.delete("key", { previousSeq: second });
    assert.equal((await values.get("key")).operation, "DEL");
  },

  async counters_in_competition_lose_nothing(stage) {
    const values = await bucket(stage);
    await values.put("count", "0");
    const add = async () => {
      for (;;) {
        const entry = await values.get("count");
        try {
          return await values.update("count", String(Number(entry.string()) + 1), entry.revision);
        } catch (error) {
          assert.equal(error.code, 10071, error);
        }
      }
    };
    await Promise.all(numbers(12).map(add));
    assert.equal((await values.get("count")).string(), "12");
  },

  async history_is_as_long_as_was_said(stage) {
    const values = await bucket(stage, { history: 3 });
    for (const number of numbers(5)) await values.put("key", String(number));
    await values.put("other", "1");
    await values.delete("key");
    assert.deepEqual((await all(values.history({ key: "key" }))).map(shown), ["PUT key 4", "PUT key 5", "DEL key"]);
    assert.equal((await all(values.history())).length, 4);
  },

  async keys_are_listed_and_filtered(stage) {
    const values = await bucket(stage);
    for (const key of ["a.1", "a.2", "b.1", "c"]) await values.put(key, "x");
    await values.delete("a.2");
    const keys = async (filter) => (await all(values.keys(filter))).sort();
    assert.deepEqual(await keys(), ["a.1", "b.1", "c"]);
    assert.deepEqual(await keys("a.>"), ["a.1"]);
    assert.deepEqual(await keys(["a.*", "b.*"]), ["a.1", "b.1"]);
    assert.deepEqual(await keys("nothing"), []);
  },

  async watcher_sees_what_is_there_and_what_comes(stage) {
    const values = await bucket(stage);
    await values.put("a", "1");
    await values.put("b", "2");
    const found = gather(await values.watch());
    await eventually(() => found.length === 2);
    await values.put("a", "3");
    await values.delete("b");
    await values.purge("a");
    await eventually(() => found.length === 5);
    assert.deepEqual(found, ["PUT a 1", "PUT b 2", "PUT a 3", "DEL b", "PURGE a"]);
  },

  async watcher_of_an_empty_bucket_sees_what_comes(stage) {
    const values = await bucket(stage);
    const found = gather(await values.watch());
    await values.put("first", "1");
    await eventually(() => found.length === 1);
    assert.deepEqual(found, ["PUT first 1"]);
  },

  async watcher_chooses_keys_and_updates(stage) {
    const values = await bucket(stage);
    await values.put("x.1", "old");
    const options = { key: "x.*", include: KvWatchInclude.UpdatesOnly, ignoreDeletes: true };
    const found = gather(await values.watch(options));
    await values.put("y.1", "unseen");
    await values.delete("x.1");
    await values.put("x.2", "new");
    await eventually(() => found.length > 0);
    assert.deepEqual(found, ["PUT x.2 new"]);
  },

  async watcher_sees_history_and_begins_at_a_revision(stage) {
    const values = await bucket(stage, { history: 10 });
    for (const number of numbers(4)) await values.put("key", String(number));
    const revisions = async (options, count) => (await take(values.watch(options), count)).map((entry) => entry.revision);
    assert.deepEqual(await revisions({ include: KvWatchInclude.AllHistory }, 4), [1, 2, 3, 4]);
    assert.deepEqual(await revisions({ resumeFromRevision: 3 }, 2), [3, 4]);
  },

  async watcher_goes_on_after_a_new_connection(stage) {
    const values = await bucket(stage);
    const restless = await stage.connect();
    const { bucket: name } = await values.status();
    const found = gather(await (await new Kvm(restless).open(name)).watch());
    for (const round of numbers(3)) {
      await values.put("key", String(round));
      await eventually(() => found.length === round);
      if (round < 3) await reconnect(restless);
    }
    assert.deepEqual(found, ["PUT key 1", "PUT key 2", "PUT key 3"]);
  },

  async old_markers_are_purged(stage) {
    const values = await bucket(stage, { history: 3 });
    for (const key of ["a", "b", "c"]) await values.put(key, "1");
    await values.delete("a");
    await values.delete("b");
    await values.purgeDeletes(0);
    assert.deepEqual([(await values.status()).values, await values.get("a")], [1, null]);
  },

  async bucket_is_described_listed_and_destroyed(stage) {
    const name = stage.name("B");
    const options = { history: 4, ttl: 60_000, storage: StorageType.Memory, description: "levels", max_bytes: 1_000_000 };
    const values = await stage.buckets.create(name, options);
    const status = await values.status();
    assert.deepEqual([status.bucket, status.history, status.ttl, status.values], [name, 4, 60_000, 0]);
    assert.deepEqual([status.description, status.storage, status.max_bytes], ["levels", "memory", 1_000_000]);
    assert.ok((await all(stage.buckets.list())).some((one) => one.bucket === name));
    assert.equal(await values.destroy(), true);
    await refused((await stage.buckets.open(name)).status(), 10059);
  },

  async values_go_with_the_age_of_their_bucket(stage) {
    const values = await bucket(stage, { ttl: 1000 });
    await values.put("key", "1");
    await eventually(async () => (await values.get("key")) === null);
  },

  async value_with_a_time_of_its_own_leaves_a_marker(stage) {
    const values = await bucket(stage, { markerTTL: 60_000 });
    const watched = gather(await values.watch());
    await values.create("key", "1", "1s");
    await eventually(() => watched.length === 2);
    assert.deepEqual(watched, ["PUT key 1", "PURGE key"]);
    assert.equal((await values.get("key")).operation, "PURGE");
  },

  async marker_of_a_purge_goes_after_its_time(stage) {
    const values = await bucket(stage, { markerTTL: 2000 });
    await values.put("key", "1");
    await values.purge("key", { ttl: "1s" });
    assert.equal((await values.get("key")).operation, "PURGE");
    await eventually(async () => (await values.get("key")) === null);
  },

  async bucket_takes_values_of_another(stage) {
    const origin = await bucket(stage);
    await origin.put("key", "1");
    const copy = await bucket(stage, { sources: [{ name: (await origin.status()).bucket }] });
    await eventually(async () => (await copy.get("key"))?.string() === "1");
    await origin.put("key", "2");
    await eventually(async () => (await copy.get("key")).string() === "2");
  },

  async values_are_published_again(stage) {
    const name = stage.name("B");
    const heard = stage.connection.subscribe(`again.${name}.>`, { max: 1 });
    const values = await stage.buckets.create(name, { republish: { src: ">", dest: `again.${name}.>` } });
    await values.put("key", "1");
    const [message] = await take(heard, 1);
    assert.deepEqual([message.subject, message.string()], [`again.${name}.$KV.${name}.key`, "1"]);
  },
};
