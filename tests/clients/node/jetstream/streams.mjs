// Streams as the published client manages them: what is kept, what goes, and what is refused.
import assert from "node:assert/strict";
import { all, eventually, numbers, refused, take } from "./stage.mjs";

const { headers, nanos } = await import("@nats-io/transport-node");
const { DiscardPolicy, StorageType } = await import("@nats-io/jetstream");

/** Headers with one field. */
function field(name, value) {
  const made = headers();
  made.set(name, value);
  return made;
}

export const behaviours = {
  // --- management ---

  async account_is_described(stage) {
    await stage.stream();
    const info = await stage.manager.getAccountInfo();
    assert.ok(info.streams >= 1 && info.api.total >= 1 && info.limits);
  },

  async stream_is_made_described_found_and_deleted(stage) {
    const name = await stage.stream({ description: "levels", metadata: { plant: "north" } });
    const info = await stage.manager.streams.info(name);
    assert.deepEqual([info.config.name, info.config.description, info.config.metadata.plant], [name, "levels", "north"]);
    assert.deepEqual([info.state.messages, info.state.first_seq, info.state.last_seq], [0, 0, 0]);
    assert.equal(await stage.manager.streams.find(`${name}.tank`), name);
    assert.deepEqual((await all(stage.manager.streams.list(`${name}.tank`))).map((one) => one.config.name), [name]);
    assert.ok((await all(stage.manager.streams.names())).includes(name));
    assert.equal(await stage.manager.streams.delete(name), true);
    await refused(stage.manager.streams.info(name), 10059);
    await refused(stage.manager.streams.find(`${name}.tank`), /no stream matches/);
  },

  async stream_is_made_once_and_not_twice_in_different_ways(stage) {
    const name = await stage.stream();
    assert.equal((await stage.manager.streams.add({ name, subjects: [`${name}.>`] })).config.name, name);
    await refused(stage.manager.streams.add({ name, subjects: [`${name}.other`] }), 10058);
  },

  async subjects_of_another_stream_are_refused(stage) {
    const name = await stage.stream();
    await refused(stage.manager.streams.add({ name: stage.name(), subjects: [`${name}.*.level`] }), 10065);
  },

  async stream_is_updated_and_what_may_not_change_is_refused(stage) {
    const name = await stage.stream();
    await stage.publish(name, 5);
    const updated = await stage.manager.streams.update(name, { subjects: [`${name}.>`, `also.${name}`], max_msgs: 3 });
    assert.deepEqual([updated.config.max_msgs, updated.config.subjects.length], [3, 2]);
    await stage.js.publish(`also.${name}`);
    assert.equal(await stage.count(name), 3);
    await refused(stage.manager.streams.update(name, { storage: StorageType.Memory }), 10052);
  },

  async requests_that_are_wrong_are_answered_with_numbers(stage) {
    const ask = async (endpoint, body) => (await stage.connection.request(`$JS.API.${endpoint}`, body, { timeout: 10_000 })).json();
    const missing = await ask("STREAM.INFO.NOT_THERE", "");
    assert.deepEqual([missing.error.code, missing.error.err_code], [404, 10059]);
    assert.equal(missing.type, "io.nats.jetstream.api.v1.stream_info_response");
    assert.equal((await ask("STREAM.CREATE.BROKEN", "{nothing")).error.code, 400);
  },

  async life_of_a_stream_is_told_to_those_who_listen(stage) {
    const name = stage.name();
    const advisories = stage.connection.subscribe(`$JS.EVENT.ADVISORY.STREAM.*.${name}`, { max: 3 });
    await stage.connection.flush();
    await stage.stream({ name });
    await stage.manager.streams.update(name, { max_msgs: 10 });
    await stage.manager.streams.delete(name);
    assert.deepEqual((await take(advisories, 3)).map((one) => one.json().action), ["create", "modify", "delete"]);
  },

  async subjects_are_counted_one_by_one(stage) {
    const name = await stage.stream();
    await stage.publish(name, 7, (number) => `tank${number % 3}.level`);
    const { state } = await stage.manager.streams.info(name, { subjects_filter: `${name}.*.level` });
    assert.equal(state.num_subjects, 3);
    assert.deepEqual(state.subjects, { [`${name}.tank0.level`]: 2, [`${name}.tank1.level`]: 3, [`${name}.tank2.level`]: 2 });
  },

  // --- limits ---

  async oldest_messages_go_when_there_are_too_many(stage) {
    const name = await stage.stream({ max_msgs: 4 });
    await stage.publish(name, 9);
    const { state } = await stage.manager.streams.info(name);
    assert.deepEqual([state.messages, state.first_seq, state.last_seq], [4, 6, 9]);
  },

  async oldest_messages_go_when_they_are_too_large_together(stage) {
    const name = await stage.stream({ max_bytes: 8192 });
    for (const _ of numbers(20)) await stage.js.publish(`${name}.a`, new Uint8Array(1024));
    const { state } = await stage.manager.streams.info(name);
    assert.ok(state.bytes <= 8192 && state.messages < 9 && state.last_seq === 20, JSON.stringify(state));
  },

  async full_stream_refuses_when_it_is_told_to(stage) {
    const name = await stage.stream({ max_msgs: 2, discard: DiscardPolicy.New });
    await stage.publish(name, 2);
    await refused(stage.js.publish(`${name}.a`, "3"), 10077);
    await stage.manager.streams.deleteMessage(name, 1);
    assert.equal((await stage.js.publish(`${name}.a`, "3")).seq, 3);
  },

  async full_subject_refuses_when_it_is_told_to(stage) {
    const name = await stage.stream({ max_msgs_per_subject: 1, discard: DiscardPolicy.New, discard_new_per_subject: true });
    await stage.publish(name, 1);
    await refused(stage.js.publish(`${name}.a`, "2"), 10077);
    await stage.js.publish(`${name}.b`, "2");
    assert.equal(await stage.count(name), 2);
  },

  async only_the_last_messages_of_a_subject_are_kept(stage) {
    const name = await stage.stream({ max_msgs_per_subject: 2 });
    await stage.publish(name, 10, (number) => `tank${number % 2}`);
    assert.equal(await stage.count(name), 4);
    assert.equal((await stage.manager.streams.getMessage(name, { seq: 7 })).string(), "7");
    assert.equal(await stage.manager.streams.getMessage(name, { seq: 6 }), null);
  },

  async message_that_is_too_large_is_refused(stage) {
    const name = await stage.stream({ max_msg_size: 100 });
    await refused(stage.js.publish(`${name}.a`, new Uint8Array(101)), 10054);
    await stage.js.publish(`${name}.a`, new Uint8Array(100));
  },

  async messages_go_with_age(stage) {
    const name = await stage.stream({ max_age: nanos(700), storage: StorageType.Memory });
    await stage.publish(name, 3);
    await stage.counted(name, 0);
    assert.equal((await stage.manager.streams.info(name)).state.first_seq, 4);
  },

  async message_goes_when_its_own_time_is_over(stage) {
    const name = await stage.stream({ allow_msg_ttl: true });
    await stage.js.publish(`${name}.a`, "for a second", { ttl: "1s" });
    await stage.js.publish(`${name}.b`, "for good");
    await stage.counted(name, 1);
    assert.equal((await stage.manager.streams.info(name)).state.first_seq, 2);
  },

  async marker_is_left_where_the_last_message_of_a_subject_went(stage) {
    const name = await stage.stream({ max_age: nanos(1000), subject_delete_marker_ttl: nanos(60_000), allow_rollup_hdrs: true });
    await stage.publish(name, 1);
    const marker = await eventually(async () => {
      const last = await stage.manager.streams.getMessage(name, { last_by_subj: `${name}.a` });
      return last?.seq === 2 && last;
    });
    assert.equal(marker.header.get("Nats-Marker-Reason"), "MaxAge");
    assert.equal(marker.header.get("Nats-TTL"), "1m0s");
  },

  // --- what is stored ---

  async messages_are_purged_by_subject_by_place_and_by_number(stage) {
    const name = await stage.stream();
    await stage.publish(name, 12, (number) => (number % 2 ? "odd" : "even"));
    const purged = async (options) => (await stage.manager.streams.purge(name, options)).purged;
    assert.equal(await purged({ filter: `${name}.odd` }), 6);
    assert.equal(await purged({ seq: 5 }), 2);
    assert.equal(await purged({ keep: 3 }), 1);
    assert.equal(await purged(), 3);
    const { state } = await stage.manager.streams.info(name);
    assert.deepEqual([state.messages, state.first_seq, state.last_seq], [0, 13, 12]);
  },

  async message_is_read_and_deleted(stage) {
    const name = await stage.stream();
    const made = headers();
    made.append("Unit", "mm");
    made.append("Unit", "cm");
    await stage.js.publish(`${name}.a`, "one", { headers: made });
    await stage.publish(name, 2, "b");
    const message = await stage.manager.streams.getMessage(name, { seq: 1 });
    assert.deepEqual([message.subject, message.string(), message.header.values("Unit")], [`${name}.a`, "one", ["mm", "cm"]]);
    assert.equal((await stage.manager.streams.getMessage(name, { last_by_subj: `${name}.b` })).seq, 3);
    assert.equal(await stage.manager.streams.deleteMessage(name, 2, false), true);
    assert.equal(await stage.manager.streams.getMessage(name, { seq: 2 }), null);
    const { state } = await stage.manager.streams.info(name, { deleted_details: true });
    assert.deepEqual([state.messages, state.deleted], [2, [2]]);
  },

  async messages_are_read_directly(stage) {
    const name = await stage.stream({ allow_direct: true });
    await stage.publish(name, 9, (number) => `tank${number % 3}`);
    const { direct } = stage.manager;
    assert.equal((await direct.getMessage(name, { seq: 2 })).string(), "2");
    assert.equal((await direct.getMessage(name, { last_by_subj: `${name}.tank1` })).seq, 7);
    assert.equal((await direct.getMessage(name, { next_by_subj: `${name}.tank0`, seq: 4 })).seq, 6);
    assert.equal(await direct.getMessage(name, { seq: 10 }), null);
    assert.deepEqual((await all(direct.getBatch(name, { seq: 3, batch: 4 }))).map((one) => one.seq), [3, 4, 5, 6]);
    const last = await all(direct.getLastMessagesFor(name, { multi_last: [`${name}.>`] }));
    assert.deepEqual(last.map((one) => one.string()), ["7", "8", "9"]);
  },

  async what_was_before_is_rolled_up(stage) {
    const name = await stage.stream({ allow_rollup_hdrs: true });
    await stage.publish(name, 6, (number) => (number % 2 ? "odd" : "even"));
    await stage.js.publish(`${name}.odd`, "sum", { headers: field("Nats-Rollup", "sub") });
    assert.equal(await stage.count(name), 4);
    await stage.js.publish(`${name}.odd`, "sum of all", { headers: field("Nats-Rollup", "all") });
    assert.equal(await stage.count(name), 1);
    const strict = await stage.stream();
    await refused(stage.js.publish(`${strict}.a`, "", { headers: field("Nats-Rollup", "sub") }), 10111);
  },

  async nothing_is_taken_out_of_a_stream_that_denies_it(stage) {
    const name = await stage.stream({ deny_delete: true, deny_purge: true });
    await stage.publish(name, 1);
    await refused(stage.manager.streams.purge(name), /purge not permitted/);
    await refused(stage.manager.streams.deleteMessage(name, 1), /delete not permitted/);
    assert.equal(await stage.count(name), 1);
  },

  async sealed_stream_takes_nothing_more(stage) {
    const name = await stage.stream();
    await stage.publish(name, 1);
    assert.equal((await stage.manager.streams.update(name, { sealed: true })).config.sealed, true);
    await refused(stage.js.publish(`${name}.a`, "2"), 10109);
    assert.equal((await stage.manager.streams.getMessage(name, { seq: 1 })).string(), "1");
  },

  // --- what streams do by themselves ---

  async subjects_are_transformed_before_they_are_stored(stage) {
    const name = stage.name();
    const subject_transform = { src: `${name}.in.*.*`, dest: `${name}.out.{{wildcard(2)}}.{{wildcard(1)}}` };
    await stage.stream({ name, subjects: [`${name}.in.>`], subject_transform });
    await stage.js.publish(`${name}.in.north.tank`);
    assert.equal((await stage.manager.streams.getMessage(name, { seq: 1 })).subject, `${name}.out.tank.north`);
  },

  async stored_messages_are_published_again(stage) {
    const name = stage.name();
    const heard = stage.connection.subscribe(`again.${name}.>`, { max: 2 });
    await stage.stream({ name, republish: { src: ">", dest: `again.${name}.>` } });
    await stage.publish(name, 2);
    const found = (await take(heard, 2)).map((one) => [one.string(), one.headers.get("Nats-Sequence"), one.headers.get("Nats-Last-Sequence")]);
    assert.deepEqual(found, [["1", "1", "0"], ["2", "2", "1"]]);
  },

  async mirror_has_what_its_origin_has_and_gets(stage) {
    const origin = await stage.stream();
    await stage.publish(origin, 5);
    const mirror = await stage.stream({ mirror: { name: origin } });
    await stage.counted(mirror, 5);
    await stage.publish(origin, 4);
    await stage.counted(mirror, 9);
    assert.equal((await stage.manager.streams.getMessage(mirror, { seq: 7 })).subject, `${origin}.a`);
    await eventually(async () => (await stage.manager.streams.info(mirror)).mirror.lag === 0);
  },

  async sources_are_gathered_filtered_and_transformed(stage) {
    const [one, other] = [await stage.stream(), await stage.stream()];
    await stage.publish(one, 3);
    await stage.publish(other, 6, (number) => `tank${number % 2}`);
    const name = stage.name();
    await stage.stream({
      name,
      sources: [
        { name: one, subject_transforms: [{ src: `${one}.>`, dest: `${name}.one.>` }] },
        { name: other, filter_subject: `${other}.tank1` },
      ],
    });
    await stage.counted(name, 6);
    const { state } = await stage.manager.streams.info(name, { subjects_filter: ">" });
    assert.deepEqual(state.subjects, { [`${name}.one.a`]: 3, [`${other}.tank1`]: 3 });
  },

  async message_is_published_when_its_schedule_says(stage) {
    const name = await stage.stream({ allow_msg_schedules: true, allow_msg_ttl: true });
    const specification = new Date(Date.now() + 1500);
    await stage.js.publish(`${name}.plan`, "now", { schedule: { specification, target: `${name}.done` } });
    const done = await eventually(() => stage.manager.streams.getMessage(name, { last_by_subj: `${name}.done` }));
    assert.equal(done.string(), "now");
    assert.equal(done.header.get("Nats-Scheduler"), `${name}.plan`);
    assert.ok(done.time.getTime() >= specification.getTime() - 1000);
  },

  async counter_adds_up(stage) {
    const name = await stage.stream({ allow_msg_counter: true, allow_direct: true });
    const add = async (number) => {
      const options = { headers: field("Nats-Incr", number), timeout: 10_000 };
      return (await stage.connection.request(`${name}.hits`, "", options)).json();
    };
    assert.equal((await add("+7")).val, "7");
    assert.equal((await add("-9")).val, "-2");
    assert.equal((await stage.manager.direct.getMessage(name, { last_by_subj: `${name}.hits` })).json().val, "-2");
    assert.ok((await add("many")).error);
  },
};
