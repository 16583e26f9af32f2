// SPDX-License-Identifier: Apache-2.0
// What ops are made of, as traces hold it: nodes add up to what was predicted, values to the memory
// curve, and a file with a wrong reference is refused.
#include "viz/analysis/inside.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "schedules/ir/listing.h"
#include "schedules/scenario/scenario.h"
#include "schedules/trace/trace_inside.h"
#include "sim/cluster/cluster.h"
#include "sim/predict/predict.h"
#include "sim/predict/predicted_trace.h"
#include "viz/analysis/arena_map.h"
#include "viz/analysis/units_text.h"
#include "viz/picture/formats/svg.h"
#include "viz/window/geometry.h"
#include "viz/window/script.h"
#include "viz/window/view/scene.h"

namespace rehearse::viz {
namespace {

struct Predicted {
  sim::Prediction prediction;
  Trace trace;
};

// A tiny GPT on 4 ranks (tp 2, interleaved pp 2), as our executor runs it.
Predicted predicted(const std::vector<std::string>& changes = {}) {
  std::vector<std::string> all{"plan.runtime=rehearse"};
  all.insert(all.end(), changes.begin(), changes.end());
  const Result<Scenario> scenario =
      read_scenario("scenarios/tiny-gpt-4-ranks.json", {.overrides = all});
  EXPECT_TRUE(scenario) << scenario.error().message;
  const Result<sim::Cluster> cluster = sim::read_cluster(scenario.value().cluster);
  EXPECT_TRUE(cluster) << cluster.error().message;
  Result<sim::Prediction> p = sim::predict(scenario.value(), cluster.value());
  EXPECT_TRUE(p) << p.error().message;
  Trace trace = sim::predicted_trace(p.value(), scenario.value(), cluster.value());
  return {std::move(p).value(), std::move(trace)};
}

TEST(Inside, NodesAddUpToWhatTheOpTakesAlone) {
  const auto [p, trace] = predicted();
  int ops = 0;
  for (OpId op{0}; op.value < trace.num_ops(); ++op.value) {
    const std::vector<NodeLine> lines = nodes_of(trace, op);
    if (!is_compute(trace.class_of(op).kind)) {
      EXPECT_TRUE(lines.empty()) << op_name(trace, op);
      continue;
    }
    ASSERT_FALSE(lines.empty()) << op_name(trace, op);
    std::int64_t sum = 0, nodes = 0;
    for (const NodeLine& line : lines) {
      const TraceNode& node = trace.nodes[static_cast<std::size_t>(line.node)];
      ASSERT_GE(node.time_ns, 0);
      EXPECT_EQ(node.overlapped, 0);  // this executor hides none: times add up
      sum += node.time_ns * line.times;
      nodes += line.times;
    }
    const sim::Cost& cost =
        p.pricing.table.costs[static_cast<std::size_t>(p.pricing.table.of_op[op.index()])];
    // Each is rounded to 1 ns; the host's time makes the whole at most 1 % longer here.
    EXPECT_LE(sum, cost.time.value + nodes) << op_name(trace, op);
    EXPECT_GE(static_cast<double>(sum), 0.99 * static_cast<double>(cost.time.value))
        << op_name(trace, op);
    ++ops;
  }
  EXPECT_EQ(ops, 64);  // 2 rows x 2 chunks x 8 micro-batches x (F, B)
}

TEST(Inside, ABackwardWithRecomputeSaysWhatRunsAgain) {
  const auto count = [](const Trace& trace) {
    int again = 0;
    for (const TraceNode& node : trace.nodes) again += node.recompute;
    return again;
  };
  EXPECT_EQ(count(predicted().trace), 0);
  EXPECT_GT(count(predicted({"plan.recompute=full"}).trace), 0);
}

// The arena as a map: every device value with an address is one block, and no two that share an
// address are alive at one time.
TEST(ArenaMap, NoTwoValuesAreAtOnePlaceAtOneTime) {
  const auto [p, trace] = predicted();
  int shared = 0;
  for (std::int32_t row = 0; row < trace.num_rows(); ++row) {
    const std::vector<ArenaBlock> blocks = arena_map(trace, {row});
    std::size_t expected = 0;
    for (const TraceValue& value : trace.values) {
      expected += value.row == RankClass{row} && value.home == Home::Device && value.offset >= 0 &&
                  value.bytes > 0;
    }
    ASSERT_EQ(blocks.size(), expected);
    ASSERT_GT(blocks.size(), 20u);
    EXPECT_LE(arena_bytes(blocks), p.schedule.arena_bytes[static_cast<std::size_t>(row)].value);
    for (std::size_t a = 0; a < blocks.size(); ++a) {
      for (std::size_t b = a + 1; b < blocks.size(); ++b) {
        if (blocks[b].offset >= blocks[a].offset + blocks[a].bytes) continue;
        ++shared;
        EXPECT_TRUE(blocks[a].end <= blocks[b].begin || blocks[b].end <= blocks[a].begin)
            << value_name(trace, blocks[a].value) << " and " << value_name(trace, blocks[b].value);
      }
    }
  }
  EXPECT_GT(shared, 20);  // addresses are used again
}

TEST(Inside, OperandsAreTheSchedules) {
  const auto [p, trace] = predicted();
  for (OpId op{0}; op.value < trace.num_ops(); ++op.value) {
    const auto here = operands_of(trace, op);
    const auto there = p.schedule.operands_of(op);
    ASSERT_EQ(here.size(), there.size());
    for (std::size_t i = 0; i < here.size(); ++i) {
      EXPECT_EQ(value_name(trace, here[i].value), value_name(p.schedule, there[i].value));
      EXPECT_EQ(here[i].access, there[i].access);
      const TraceValue& value = trace.values[static_cast<std::size_t>(here[i].value)];
      EXPECT_EQ(value.bytes, p.schedule.values[there[i].value.index()].bytes.value);
    }
  }
}

TEST(Inside, WhatIsAliveIsWhatTheMemoryCurveShows) {
  for (const char* zero : {"plan.zero_stage=0", "plan.recompute=full"}) {
    Predicted of = predicted({zero});
    Trace& trace = of.trace;
    int samples = 0;
    for (RankClass row{0}; row.value < trace.num_rows(); ++row.value) {
      for (auto i = trace.memory_begin[row.index()]; i < trace.memory_begin[row.index() + 1]; ++i) {
        const std::int64_t time = trace.memory_time[static_cast<std::size_t>(i)];
        // alive_at is empty where the sums differ.
        EXPECT_FALSE(alive_at(trace, row, time).empty()) << zero << " at " << time;
        ++samples;
      }
    }
    EXPECT_GT(samples, 50);
    const std::vector<std::int32_t> alive = alive_at(trace, {0}, trace.end.value);
    for (std::size_t i = 1; i < alive.size(); ++i) {
      EXPECT_GE(trace.values[static_cast<std::size_t>(alive[i - 1])].bytes,
                trace.values[static_cast<std::size_t>(alive[i])].bytes);
    }
    // A value that lives longer than it did no longer adds up, and nothing is claimed.
    std::vector<TraceValue> values(trace.values.begin(), trace.values.end());
    std::size_t short_lived = 0;
    while (!values[short_lived].hold_until || !values[short_lived].define ||
           values[short_lived].home != Home::Device || values[short_lived].row != RankClass{0}) {
      ++short_lived;
    }
    values[short_lived].hold_until = {};
    trace.values = std::move(values);
    EXPECT_TRUE(alive_at(trace, {0}, trace.end.value).empty());
  }
}

// A framework's memory is its allocator's, not the values': nothing is said about what is alive.
TEST(Inside, OfAFrameworksAllocatorNothingIsClaimed) {
  const auto [p, trace] = predicted({"plan.runtime=megatron"});
  ASSERT_FALSE(trace.memory_time.empty());
  EXPECT_TRUE(alive_at(trace, {0}, trace.end.value).empty());
  EXPECT_FALSE(trace.nodes.empty());
}

TEST(Inside, AFileKeepsItAndRefusesWrongReferences) {
  const std::string path = testing::TempDir() + "inside.trace";
  const auto broken = [&](auto change) {
    Predicted of = predicted();
    change(of.trace);
    EXPECT_TRUE(write_trace(of.trace, path));
    const Result<Trace> back = read_trace(path);
    return back ? std::string() : back.error().message;
  };
  const Predicted of = predicted();
  ASSERT_TRUE(write_trace(of.trace, path));
  const Result<Trace> back = read_trace(path);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_TRUE(std::ranges::equal(back.value().operands, of.trace.operands));
  EXPECT_TRUE(std::ranges::equal(back.value().values, of.trace.values));
  EXPECT_TRUE(std::ranges::equal(back.value().nodes, of.trace.nodes));
  EXPECT_TRUE(std::ranges::equal(back.value().bodies, of.trace.bodies));
  EXPECT_TRUE(std::ranges::equal(back.value().runs, of.trace.runs));

  const auto edit = []<class T>(Column<T>& column, auto change) {
    std::vector<T> entries(column.begin(), column.end());
    change(entries[entries.size() / 2]);
    column = std::move(entries);
  };
  EXPECT_EQ(broken([](Trace&) {}), "");
  EXPECT_NE(broken([&](Trace& t) {
              edit(t.operands, [](TraceOperand& o) { o.value = 1 << 30; });
            }).find("no such value"),
            std::string::npos);
  EXPECT_NE(broken([&](Trace& t) {
              edit(t.values, [&](TraceValue& v) { v.last_use = OpId{t.num_ops()}; });
            }).find("no such op"),
            std::string::npos);
  EXPECT_NE(broken([&](Trace& t) {
              edit(t.bodies, [](TraceBody& b) { b.node_end = b.node_begin - 1; });
            }).find("no such nodes"),
            std::string::npos);
  EXPECT_NE(broken([&](Trace& t) {
              edit(t.runs, [](TraceBodyRun& r) { r.body = -1; });
            }).find("no such body"),
            std::string::npos);
  EXPECT_NE(broken([&](Trace& t) {
              edit(t.run_begin, [](std::int32_t& offset) { offset = 1 << 30; });
            }).find("run_begin"),
            std::string::npos);
  std::filesystem::remove(path);
}

bool says(const Scene& scene, std::string_view what) {
  for (const Text& text : scene.texts) {
    if (text.text.find(what) != std::string::npos) return true;
  }
  return std::ranges::any_of(scene.layers, [&](const Scene& layer) { return says(layer, what); });
}

ViewState after(const Session& session, std::string_view script) {
  ViewState state = initial_state(session, 1400, 900);
  const Result<std::vector<Event>> events = parse_script(script, "script");
  EXPECT_TRUE(events) << events.error().message;
  for (const Event& event : events.value()) state = reduce(session, std::move(state), event);
  return state;
}

TEST(Inside, TheWindowShowsNodesAndOperandsOfTheSelectedOp) {
  std::vector<Document> documents;
  documents.emplace_back(predicted().trace);
  const Session session(std::move(documents));
  constexpr std::string_view kSelect = "key /\ntext 2B2\nkey Enter\nkey Escape\n";
  const ViewState closed = after(session, kSelect);
  EXPECT_FALSE(says(view_scene(session, closed), "gemm d_fc1 input"));
  const ViewState open = after(session, std::string(kSelect) + "key O\n");
  const Scene scene = view_scene(session, open);
  for (const char* what : {"Inside 2B2", "gemm d_fc1 input", "layer B, 2 times", "64 × 256 × 128",
                           "reads", "sI2.2", "2F2 to 2B2"}) {
    EXPECT_TRUE(says(scene, what)) << what;
  }
  EXPECT_FALSE(
      says(view_scene(session, after(session, std::string(kSelect) + "key O\nkey O\n")), "Inside"));
  // Without a selection there is nothing to open.
  EXPECT_FALSE(after(session, "key O\n").inside);
}

// A measured op has no times inside: those of the prediction beside it are shown.
TEST(Inside, AMeasuredOpShowsThePredictionsNodes) {
  Trace measured = predicted().trace;
  measured.label = TraceLabel::Measured;
  std::vector<TraceNode> nodes(measured.nodes.begin(), measured.nodes.end());
  for (TraceNode& node : nodes) node.time_ns = -1;
  measured.nodes = std::move(nodes);
  std::vector<Document> alone, beside;
  alone.emplace_back(std::move(measured));
  measured = predicted().trace;
  measured.label = TraceLabel::Measured;
  beside.emplace_back(predicted().trace);
  beside.emplace_back(std::move(measured));
  const Session one(std::move(alone)), two(std::move(beside));
  ViewState state = after(one, "");
  state.selected = {0, OpId{3}};
  while (!is_compute(one.at(0).trace().class_of(state.selected.op).kind)) ++state.selected.op.value;
  state.inside = true;
  EXPECT_FALSE(says(view_scene(one, state), "one after another"));
  // Where there is no room for all, those with most work are kept: products, not norms.
  ViewState low = state;
  low.height = 420;
  EXPECT_TRUE(says(view_scene(one, low), "heaviest are shown"));
  EXPECT_TRUE(says(view_scene(one, low), "gemm fc1"));
  EXPECT_FALSE(says(view_scene(one, low), "norm1"));
  state.selected.document = 1;
  EXPECT_TRUE(says(view_scene(two, state), "one after another"));
}

// A click on a memory curve opens what is alive at the peak, by name, and the arena's map; of a
// framework's allocator its parts alone.
TEST(MemoryBox, TellsWhatIsAliveAtThePeak) {
  for (const bool own : {true, false}) {
    std::vector<Document> documents;
    documents.emplace_back(own ? predicted().trace : predicted({"plan.runtime=megatron"}).trace);
    const Session session(std::move(documents));
    const ViewState before = initial_state(session, 1440, 900);
    const Geometry at = geometry(session, before);
    ASSERT_GE(at.rows[0].memory_y, 0);
    const std::string place = " 700 " + std::to_string(at.rows[0].memory_y + 10);
    const Result<std::vector<Event>> click =
        parse_script("press" + place + "\nrelease" + place + "\n", "click");
    ASSERT_TRUE(click);
    ViewState state = before;
    for (const Event& event : click.value()) state = reduce(session, std::move(state), event);
    ASSERT_TRUE(state.memory_at);
    const std::string picture = svg(view_scene(session, state));
    EXPECT_NE(picture.find("Memory of rank 0"), std::string::npos);
    EXPECT_NE(picture.find("at the peak"), std::string::npos);
    const Document& document = session.at(0);
    const MemoryPeak& peak = document.memory(0).peak();
    EXPECT_NE(picture.find(bytes_text(peak.bytes, peak.bytes)), std::string::npos);
    const std::vector<std::int32_t> alive = alive_at(document.trace(), {0}, peak.time);
    EXPECT_EQ(alive.empty(), !own);
    EXPECT_EQ(picture.find("arena: address over time") != std::string::npos, own);
    if (own) {
      EXPECT_NE(picture.find(">" + value_name(document.trace(), alive[0]) + "<"),
                std::string::npos);
    }
    state = reduce(session, std::move(state), {.type = Event::Type::Key, .key = Key::Escape});
    EXPECT_FALSE(state.memory_at);
  }
}

}  // namespace
}  // namespace rehearse::viz
