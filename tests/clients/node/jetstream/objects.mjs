// Stores of objects, which are cut into messages and put together again.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { all, eventually, refused, take } from "./stage.mjs";

const { StorageType } = await import("@nats-io/jetstream");

const store = (stage, options = {}) => stage.stores.create(stage.name("O"), options);
const bytes = (text) => new TextEncoder().encode(text);
const text = async (objects, name) => Buffer.from(await objects.getBlob(name)).toString();

/** Bytes that are the same every time. */
const pattern = (size) => new Uint8Array(size).map((_, place) => (place * 31 + (place >> 8)) & 0xff);

/** A stream of bytes in pieces, as a file would give them. */
function pieces(data, size) {
  let place = 0;
  return new ReadableStream({
    pull(controller) {
      if (place >= data.length) return controller.close();
      controller.enqueue(data.slice(place, place + size));
      place += size;
    },
  });
}

export const behaviours = {
  async large_object_is_cut_and_put_together(stage) {
    const objects = await store(stage);
    const data = pattern(3_000_000);
    const info = await objects.put({ name: "large", options: { max_chunk_size: 65_536 } }, pieces(data, 100_000));
    assert.deepEqual([info.size, info.chunks], [3_000_000, Math.ceil(3_000_000 / 65_536)]);
    const digest = createHash("sha256").update(data).digest("base64url");
    assert.equal(info.digest.replace(/=*$/, ""), `SHA-256=${digest}`);
    const result = await objects.get("large");
    const found = Buffer.concat((await all(result.data)).map((one) => Buffer.from(one)));
    assert.ok(!(await result.error));
    assert.equal(Buffer.compare(found, data), 0);
  },

  async empty_object_is_an_object(stage) {
    const objects = await store(stage);
    const info = await objects.putBlob({ name: "empty" }, new Uint8Array(0));
    assert.deepEqual([info.size, info.chunks], [0, 0]);
    assert.equal(await text(objects, "empty"), "");
    assert.equal(await objects.getBlob("nothing"), null);
  },

  async objects_are_described_and_listed(stage) {
    const objects = await store(stage, { description: "pictures", storage: StorageType.Memory });
    const name = "a name / with spaces.and dots";
    await objects.putBlob({ name, description: "tank", metadata: { plant: "north" } }, bytes("1"));
    await objects.putBlob({ name: "second" }, bytes("22"));
    const info = await objects.info(name);
    assert.deepEqual([info.name, info.size, info.description, info.metadata.plant], [name, 1, "tank", "north"]);
    assert.deepEqual((await objects.list()).map((one) => one.name).sort(), [name, "second"]);
    const status = await objects.status();
    assert.deepEqual([status.description, status.storage, status.sealed], ["pictures", "memory", false]);
    assert.equal(await objects.info("nothing"), null);
  },

  async object_is_replaced_and_its_old_pieces_go(stage) {
    const objects = await store(stage);
    await objects.putBlob({ name: "one", options: { max_chunk_size: 1024 } }, pattern(10_240));
    assert.equal((await objects.status()).streamInfo.state.messages, 11);
    await objects.putBlob({ name: "one" }, bytes("new"));
    assert.equal(await text(objects, "one"), "new");
    assert.equal((await objects.status()).streamInfo.state.messages, 2);
  },

  async object_is_replaced_only_from_its_last_revision(stage) {
    const objects = await store(stage);
    const first = await objects.putBlob({ name: "one" }, bytes("1"), { previousRevision: 0 });
    await objects.putBlob({ name: "one" }, bytes("2"), { previousRevision: first.revision });
    await refused(objects.putBlob({ name: "one" }, bytes("3"), { previousRevision: first.revision }), /10071|wrong last sequence/);
    assert.equal(await text(objects, "one"), "2");
  },

  async deleted_object_leaves_a_marker(stage) {
    const objects = await store(stage);
    await objects.putBlob({ name: "one" }, pattern(1000));
    const deleted = await objects.delete("one");
    assert.deepEqual([deleted.success, deleted.purged], [true, 1]);
    assert.equal((await objects.info("one")).deleted, true);
    assert.equal(await objects.get("one"), null);
    assert.deepEqual(await objects.list(), []);
    await objects.putBlob({ name: "one" }, bytes("again"));
    assert.equal(await text(objects, "one"), "again");
  },

  async links_lead_to_objects_and_stores(stage) {
    const [objects, other] = [await store(stage), await store(stage)];
    const info = await other.putBlob({ name: "one" }, bytes("1"));
    const link = await objects.link("shortcut", info);
    assert.equal(link.options.link.name, "one");
    assert.equal(await text(objects, "shortcut"), "1");
    assert.equal((await objects.linkStore("elsewhere", other)).options.link.bucket, (await other.status()).bucket);
    await refused(objects.link("chain", link), /link/);
  },

  async watcher_sees_what_is_there_and_what_comes(stage) {
    const objects = await store(stage);
    await objects.putBlob({ name: "a" }, bytes("1"));
    await objects.putBlob({ name: "b" }, bytes("1"));
    const found = [];
    const watcher = await objects.watch({ includeHistory: true });
    (async () => {
      for await (const one of watcher) found.push([one.name, one.deleted ?? false]);
    })();
    await eventually(() => found.length === 2);
    await objects.putBlob({ name: "c" }, bytes("1"));
    await objects.delete("a");
    await eventually(() => found.length === 4);
    assert.deepEqual(found, [["a", false], ["b", false], ["c", false], ["a", true]]);
  },

  async watcher_without_history_sees_only_what_comes(stage) {
    const objects = await store(stage);
    await objects.putBlob({ name: "old" }, bytes("1"));
    const watched = take(await objects.watch(), 1);
    await objects.putBlob({ name: "new" }, bytes("1"));
    assert.deepEqual((await watched).map((one) => one.name), ["new"]);
  },

  async object_is_renamed_and_described_anew(stage) {
    const objects = await store(stage);
    await objects.putBlob({ name: "old" }, bytes("1"));
    await objects.putBlob({ name: "taken" }, bytes("2"));
    await objects.update("old", { name: "new", description: "renamed" });
    assert.equal((await objects.info("new")).description, "renamed");
    assert.equal(await text(objects, "new"), "1");
    assert.equal(await objects.info("old"), null);
    await refused(objects.update("new", { name: "taken" }), /already exists/);
  },

  async sealed_store_is_read_but_not_changed(stage) {
    const objects = await store(stage);
    await objects.putBlob({ name: "one" }, bytes("1"));
    assert.equal((await objects.seal()).sealed, true);
    await refused(objects.putBlob({ name: "two" }, bytes("2")), 10109);
    await refused(objects.delete("one"), /10109|sealed/);
    assert.equal(await text(objects, "one"), "1");
  },

  async full_store_refuses(stage) {
    const objects = await store(stage, { max_bytes: 100_000 });
    await objects.putBlob({ name: "one" }, pattern(50_000));
    await refused(objects.putBlob({ name: "two" }, pattern(200_000)), 10077);
    assert.equal((await objects.getBlob("one")).length, 50_000);
  },

  async objects_go_with_age(stage) {
    const objects = await store(stage, { ttl: 1_000_000_000 });
    await objects.putBlob({ name: "one" }, bytes("1"));
    await eventually(async () => (await objects.info("one")) === null);
  },

  async stores_are_listed_and_destroyed(stage) {
    const objects = await store(stage);
    const { bucket } = await objects.status();
    assert.ok((await all(stage.stores.list())).some((one) => one.bucket === bucket));
    assert.equal(await objects.destroy(), true);
    assert.ok(!(await all(stage.stores.list())).some((one) => one.bucket === bucket));
  },
};
