// SPDX-License-Identifier: Apache-2.0
// What other tools read: the files are taken apart again, by rules of their formats, not of ours.
#include "viz/export/export.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/viz/picture/full_trace.h"
#include "viz/import/import.h"

namespace rehearse::viz {
namespace {

using fixture::full_trace;
using fixture::one_f_one_b_trace;
using fixture::random_trace;

std::string exported(const Trace& trace, Result<> (*write)(const Trace&, const std::string&, bool),
                     bool inside = false) {
  const std::string path = testing::TempDir() + "export" + std::to_string(getpid());
  const Result<> done = write(trace, path, inside);
  EXPECT_TRUE(done) << done.error().message;
  std::ifstream in(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  std::remove(path.c_str());
  return bytes;
}

// --- Chrome ---

struct Slice {
  double ts = 0, dur = 0;
};

// The rules by which Perfetto and speedscope read: each throws away or misdraws what breaks one.
void check_chrome(const std::string& text) {
  const auto file = nlohmann::json::parse(text);
  std::map<std::pair<int, int>, std::vector<Slice>> lanes;
  std::set<std::pair<int, int>> named_lanes;
  std::set<int> named_processes;
  std::map<int, int> starts, ends;
  for (const auto& e : file.at("traceEvents")) {
    const std::string phase = e.at("ph");
    const int pid = e.at("pid");
    if (phase == "X") {
      EXPECT_FALSE(e.at("name").get<std::string>().empty());
      lanes[{pid, e.at("tid").get<int>()}].push_back({e.at("ts"), e.at("dur")});
    } else if (phase == "M") {
      if (e.at("name") == "process_name") named_processes.insert(pid);
      if (e.at("name") == "thread_name") named_lanes.insert({pid, e.at("tid").get<int>()});
    } else if (phase == "C") {
      for (const auto& value : e.at("args")) EXPECT_TRUE(value.is_number());
    } else if (phase == "s" || phase == "f") {
      ++(phase == "s" ? starts : ends)[e.at("id").get<int>()];
      EXPECT_EQ(e.value("bp", ""), phase == "f" ? "e" : "");
    } else {
      ADD_FAILURE() << "phase " << phase;
    }
  }
  EXPECT_EQ(starts, ends);
  for (const auto& [id, count] : starts) EXPECT_EQ(count, 1);
  for (auto& [lane, slices] : lanes) {
    EXPECT_TRUE(named_lanes.count(lane)) << lane.first << " " << lane.second;
    EXPECT_TRUE(named_processes.count(lane.first));
    for (std::size_t i = 1; i < slices.size(); ++i) {
      // Doubles, as readers add them: an end beyond the next begin would nest the next one inside.
      EXPECT_LE(slices[i - 1].ts + slices[i - 1].dur, slices[i].ts);
      EXPECT_LE(slices[i - 1].ts, slices[i].ts);
    }
  }
  // An arrow's end must lie in a slice of its lane.
  for (const auto& e : file.at("traceEvents")) {
    if (e.at("ph") != "s" && e.at("ph") != "f") continue;
    bool inside = false;
    for (const Slice& s : lanes[{e.at("pid").get<int>(), e.at("tid").get<int>()}]) {
      inside =
          inside || (s.ts <= e.at("ts").get<double>() && e.at("ts").get<double>() <= s.ts + s.dur);
    }
    EXPECT_TRUE(inside);
  }
}

TEST(Chrome, FollowsItsFormatsRules) {
  check_chrome(exported(full_trace(), export_chrome));
  check_chrome(exported(full_trace(), export_chrome, true));
  check_chrome(exported(one_f_one_b_trace(4, 12), export_chrome));
  for (std::uint32_t seed = 0; seed < 8; ++seed) {
    check_chrome(exported(random_trace(2, 300, seed, 1 + 10 * seed), export_chrome));
  }
}

// Two ops that touch: 116.701 + 929.856 > 1046.557 in doubles. The writer ends the first 1 ns
// early.
TEST(Chrome, EndsBeforeTheNextBeginsInDoubles) {
  ASSERT_GT(116.701 + 929.856, 1046.557 - 1e-9);
  Schedule schedule;
  schedule.ops = {compute_op(OpKind::Forward, {0}, {0}), compute_op(OpKind::Backward, {0}, {0})};
  schedule.end_row();
  const std::vector<Nanoseconds> start{{116'701}, {1'046'557}}, end{{1'046'557}, {2'000'000}};
  const std::string text = exported(make_trace(schedule, start, end), export_chrome);
  EXPECT_NE(text.find("\"ts\":116.701,\"dur\":929.855"), std::string::npos);
  check_chrome(text);
}

std::vector<std::string> texts_of(const Trace& trace, const Column<TraceLane>& lanes) {
  std::vector<std::string> names;
  for (const TraceLane& lane : lanes) names.emplace_back(trace.text(lane.name));
  return names;
}

// Equal in everything but the order of the table of texts.
void expect_equal(const Trace& a, const Trace& b) {
  EXPECT_EQ(a.label, b.label);
  EXPECT_EQ(a.schedule_hash, b.schedule_hash);
  EXPECT_EQ(a.schedule_name, b.schedule_name);
  EXPECT_EQ(a.title, b.title);
  EXPECT_EQ(a.caption, b.caption);
  EXPECT_EQ(a.microbatches, b.microbatches);
  EXPECT_EQ(a.begin, b.begin);
  EXPECT_EQ(a.end, b.end);
  EXPECT_EQ(a.slots, b.slots);
  EXPECT_EQ(a.memory_parts, b.memory_parts);
  EXPECT_EQ(texts_of(a, a.lanes), texts_of(b, b.lanes));
  const auto same = [](const auto& x, const auto& y) { return std::ranges::equal(x, y); };
  EXPECT_TRUE(same(a.rows, b.rows));
  EXPECT_TRUE(same(a.row_begin, b.row_begin));
  EXPECT_TRUE(same(a.start_ns, b.start_ns));
  EXPECT_TRUE(same(a.end_ns, b.end_ns));
  EXPECT_TRUE(same(a.microbatch, b.microbatch));
  EXPECT_TRUE(same(a.partner, b.partner));
  EXPECT_TRUE(same(a.cost_level, b.cost_level));
  EXPECT_TRUE(same(a.expected_start_ns, b.expected_start_ns));
  EXPECT_TRUE(same(a.communicating_ns, b.communicating_ns));
  EXPECT_TRUE(same(a.idle_begin, b.idle_begin));
  EXPECT_TRUE(same(a.idle, b.idle));
  EXPECT_TRUE(same(a.memory_begin, b.memory_begin));
  EXPECT_TRUE(same(a.memory_time, b.memory_time));
  EXPECT_TRUE(same(a.memory_bytes, b.memory_bytes));
  EXPECT_TRUE(same(a.link_begin, b.link_begin));
  EXPECT_TRUE(same(a.link_samples, b.link_samples));
  EXPECT_TRUE(same(a.wait_begin, b.wait_begin));
  EXPECT_TRUE(same(a.waits, b.waits));
  ASSERT_EQ(a.num_ops(), b.num_ops());
  for (OpId op{0}; op.value < a.num_ops(); ++op.value) {
    TraceClass x = a.class_of(op), y = b.class_of(op);
    EXPECT_EQ(op_name(a, op), op_name(b, op));
    EXPECT_EQ(a.text(x.group), b.text(y.group));
    EXPECT_EQ(a.text(x.bucket), b.text(y.bucket));
    x.group = y.group = x.bucket = y.bucket = x.name = y.name = -1;
    EXPECT_EQ(x, y);
  }
  for (std::size_t link = 0; link < a.links.size(); ++link) {
    EXPECT_EQ(a.text(a.links[link].name), b.text(b.links[link].name));
    EXPECT_EQ(a.links[link].bytes_per_second, b.links[link].bytes_per_second);
  }
}

void expect_identity(const Trace& trace) {
  const Result<Trace> back = import_chrome(exported(trace, export_chrome), "exported");
  ASSERT_TRUE(back) << back.error().message;
  expect_equal(trace, back.value());
}

TEST(Chrome, ComesBackAsItWas) {
  expect_identity(full_trace());
  expect_identity(full_trace(1, 1));
  for (std::uint32_t seed = 0; seed < 8; ++seed)
    expect_identity(random_trace(3, 200, seed, 3 + seed));
}

TEST(Chrome, KeepsOverlapsBucketsAndGroups) {
  Schedule schedule;
  schedule.level = Level::Full;
  schedule.groups = {{.kind = GroupKind::Data, .size = 4}};
  schedule.buckets = {{.name = "L\"0"}};
  schedule.children = {compute_op(OpKind::Forward, {0}, {3}),
                       compute_op(OpKind::InputGradient, {7}, {1})};
  schedule.ops = {Op{.kind = OpKind::Overlap, .child = 0}, Op{.kind = OpKind::AllReduce,
                                                              .stream = Stream::Dp,
                                                              .segment_begin = 1,
                                                              .segment_end = 3,
                                                              .group = {0},
                                                              .match = {9},
                                                              .bucket = {0}}};
  schedule.end_row();
  const std::vector<Nanoseconds> start{{0}, {5}}, end{{10}, {10}};
  expect_identity(make_trace(schedule, start, end));
}

// --- Perfetto: a reader of the wire format and of the rules that its importer has ---

struct Field {
  std::uint32_t id = 0, wire = 0;
  std::uint64_t number = 0;
  std::string_view bytes;
};

std::vector<Field> fields_of(std::string_view message) {
  std::vector<Field> fields;
  const auto varint = [&]() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (message.empty()) {
        ADD_FAILURE() << "cut short";
        return value;
      }
      const auto byte = static_cast<unsigned char>(message[0]);
      message.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    ADD_FAILURE() << "a varint without end";
    return value;
  };
  while (!message.empty() && !testing::Test::HasFailure()) {
    const std::uint64_t key = varint();
    Field field{.id = static_cast<std::uint32_t>(key >> 3),
                .wire = static_cast<std::uint32_t>(key & 7)};
    if (field.wire == 0) {
      field.number = varint();
    } else {
      const std::uint64_t size = field.wire == 2 ? varint() : 8;
      EXPECT_TRUE(field.wire == 1 || field.wire == 2) << field.wire;
      EXPECT_LE(size, message.size());
      field.bytes = message.substr(0, size);
      message.remove_prefix(std::min<std::size_t>(size, message.size()));
    }
    fields.push_back(field);
  }
  return fields;
}

struct Track {
  bool counter = false;
  std::uint64_t parent = 0;
  std::int64_t depth = 0, events = 0;
  std::uint64_t last_time = 0;
};

std::map<std::uint64_t, Track> check_perfetto(const std::string& bytes) {
  std::map<std::uint64_t, Track> tracks;
  std::map<std::uint64_t, int> flow_ends;
  std::set<std::uint64_t> event_names, annotation_names;
  bool first = true;
  for (const Field& packet : fields_of(bytes)) {
    EXPECT_EQ(packet.id, 1u);  // Trace.packet
    std::uint64_t time = 0, flags = 0, sequence = 0;
    std::string_view event, interned, descriptor;
    for (const Field& f : fields_of(packet.bytes)) {
      switch (f.id) {
        case 8:
          time = f.number;
          break;
        case 10:
          sequence = f.number;
          break;
        case 11:
          event = f.bytes;
          break;
        case 12:
          interned = f.bytes;
          break;
        case 13:
          flags = f.number;
          break;
        case 60:
          descriptor = f.bytes;
          break;
        default:
          ADD_FAILURE() << "packet field " << f.id;
      }
    }
    EXPECT_NE(sequence, 0u);
    EXPECT_EQ(flags & 1, first ? 1u : 0u);  // SEQ_INCREMENTAL_STATE_CLEARED on the first alone
    EXPECT_EQ(flags & 2, 2u);               // SEQ_NEEDS_INCREMENTAL_STATE
    first = false;
    for (const Field& f : fields_of(interned)) {
      EXPECT_TRUE(f.id == 2 || f.id == 3) << f.id;
      std::uint64_t iid = 0;
      for (const Field& entry : fields_of(f.bytes)) {
        if (entry.id == 1) iid = entry.number;
      }
      EXPECT_NE(iid, 0u);
      (f.id == 2 ? event_names : annotation_names).insert(iid);
    }
    if (!descriptor.empty()) {
      Track track;
      std::uint64_t uuid = 0;
      bool named = false;
      for (const Field& f : fields_of(descriptor)) {
        if (f.id == 1) uuid = f.number;
        if (f.id == 2) named = !f.bytes.empty();
        if (f.id == 5) track.parent = f.number;
        if (f.id == 8) track.counter = true;
      }
      EXPECT_TRUE(named);
      EXPECT_NE(uuid, 0u);
      EXPECT_TRUE(track.parent == 0 || tracks.count(track.parent) == 1);
      EXPECT_TRUE(tracks.emplace(uuid, track).second) << "track " << uuid << " twice";
    }
    if (event.empty()) continue;
    std::uint64_t type = 0, uuid = 0;
    bool named = false, valued = false;
    for (const Field& f : fields_of(event)) {
      switch (f.id) {
        case 4:
          for (const Field& a : fields_of(f.bytes)) {
            EXPECT_TRUE(a.id != 1 || annotation_names.count(a.number) == 1);
          }
          break;
        case 9:
          type = f.number;
          break;
        case 10:
          named = true;
          EXPECT_TRUE(event_names.count(f.number));
          break;
        case 11:
          uuid = f.number;
          break;
        case 23:
          named = !f.bytes.empty();
          break;
        case 30:
          valued = true;
          break;
        case 47:
        case 48: {
          EXPECT_EQ(f.wire, 1u);  // fixed64
          std::uint64_t flow = 0;
          for (std::size_t i = 8; i-- > 0;)
            flow = flow << 8 | static_cast<unsigned char>(f.bytes[i]);
          flow_ends[flow] |= f.id == 47 ? 1 : 2;
          break;
        }
        default:
          ADD_FAILURE() << "event field " << f.id;
      }
    }
    EXPECT_TRUE(tracks.count(uuid));
    Track& track = tracks[uuid];
    ++track.events;
    EXPECT_GE(time, track.last_time) << "time runs backwards on track " << uuid;
    track.last_time = time;
    EXPECT_EQ(type == 4, track.counter);
    if (type == 1) {
      EXPECT_TRUE(named);
      ++track.depth;
      EXPECT_EQ(track.depth, 1) << "a lane holds one op at a time";
    } else if (type == 2) {
      --track.depth;
      EXPECT_EQ(track.depth, 0);
    } else {
      EXPECT_EQ(type, 4u);
      EXPECT_TRUE(valued);
    }
  }
  for (const auto& [uuid, track] : tracks) EXPECT_EQ(track.depth, 0);
  for (const auto& [flow, ends] : flow_ends)
    EXPECT_EQ(ends, 3) << "flow " << flow << " has one end";
  EXPECT_FALSE(flow_ends.count(0));
  return tracks;
}

TEST(Perfetto, FollowsItsFormatsRules) {
  const Trace trace = full_trace();
  const auto tracks = check_perfetto(exported(trace, export_perfetto));
  std::int64_t slices = 0;
  for (const auto& [uuid, track] : tracks) slices += track.counter ? 0 : track.events / 2;
  EXPECT_EQ(slices, trace.num_ops() + static_cast<std::int64_t>(trace.idle.size()));
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    check_perfetto(exported(random_trace(2, 300, seed, 5), export_perfetto));
  }
}

// --- CSV ---

TEST(Csv, HasALinePerOp) {
  const Trace trace = full_trace(2, 2);
  const std::string text = exported(trace, export_csv);
  EXPECT_EQ(std::ranges::count(text, '\n'), trace.num_ops() + 1);
  EXPECT_EQ(text.substr(0, text.find('\n')),
            "op,name,row,lane,kind,stage,microbatch,slice,match,group,bucket,bytes,start_ns,end_ns,"
            "duration_ns");
  EXPECT_NE(text.find("\n0,0F0,rank 0 (x8),compute,F,0,0,,,,,,0,1001,1001\n"), std::string::npos)
      << text;
}

TEST(Export, SaysWhereItCannotWrite) {
  for (const auto write : {export_chrome, export_perfetto, export_csv}) {
    const Result<> done = write(full_trace(1, 1), "/nowhere/at/all", false);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().message, "/nowhere/at/all: cannot write: No such file or directory");
  }
}

}  // namespace
}  // namespace rehearse::viz
