// SPDX-License-Identifier: Apache-2.0
// What colours stand for: classes are what they say, shares are exact, eyes tell them apart, and
// short labels are true.
#include "viz/picture/coloring.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "tests/viz/picture/eyes.h"
#include "tests/viz/picture/full_trace.h"
#include "viz/picture/figure.h"
#include "viz/picture/formats/svg.h"
#include "viz/picture/legend.h"
#include "viz/picture/paint.h"

namespace rehearse::viz {
namespace {

// Two positions with the given stages each, an F and a B of every stage and micro-batch.
Trace chunked(const std::vector<std::vector<std::int32_t>>& stages, std::int32_t microbatches) {
  fixture::Timed timed;
  timed.schedule.microbatches = microbatches;
  timed.schedule.placement = loop_placement(static_cast<std::int32_t>(stages.size()), 1);
  for (std::size_t row = 0; row < stages.size(); ++row) {
    std::int64_t now = 0;
    for (const OpKind kind : {OpKind::Forward, OpKind::Backward}) {
      for (const std::int32_t stage : stages[row]) {
        for (std::int32_t b = 0; b < microbatches; ++b) {
          timed.schedule.ops.push_back(compute_op(kind, {stage}, {b}));
          timed.start.push_back({now});
          now += 100 + 10 * stage + b;
          timed.end.push_back({now});
        }
      }
    }
    timed.schedule.end_row();
  }
  Trace trace = make_trace(timed.schedule, timed.start, timed.end);
  std::vector<TraceRow> rows;
  for (std::int32_t row = 0; row < trace.num_rows(); ++row) rows.push_back({.position = {row}});
  trace.rows = std::move(rows);
  return trace;
}

std::string class_name(const Coloring& coloring, OpId op) {
  return std::string(coloring.style(coloring.classes()[op.index()], Theme::Light).name);
}

TEST(Coloring, NamesChunksDirectionsAndMicrobatches) {
  // Chimera's two directions: stage 0 above and below.
  const Trace trace = chunked({{0, 3}, {1, 2}, {1, 2}, {0, 3}}, 2);
  const Coloring chunk(trace, ColorBy::Chunk), direction(trace, ColorBy::Direction),
      microbatch(trace, ColorBy::Microbatch), rank(trace, ColorBy::Rank);
  for (OpId op{0}; op.value < trace.num_ops(); ++op.value) {
    const std::int32_t stage = trace.class_of(op).stage.value, row = trace.row_of(op).value;
    EXPECT_EQ(class_name(chunk, op), stage >= 2 ? "chunk 1" : "chunk 0");
    EXPECT_EQ(class_name(microbatch, op),
              "micro-batch " + std::to_string(trace.microbatch[op.index()]));
    EXPECT_EQ(class_name(rank, op), row_name(trace, {row}));
    // Rows 0 and 1 hold 0, 1 going down and 3, 2 coming up; rows 2 and 3 the other way round.
    if (row == 0 || row == 3) {
      EXPECT_EQ(class_name(direction, op),
                (stage == 0) == (row == 0) ? "down the positions" : "up the positions");
    }
  }
}

// Colours come again after eight: a name has the second of its own, if there is one, and says that
// more follow.
TEST(Coloring, NamesOfMoreThanEightAreThoseThatThereAre) {
  const Trace nine = fixture::one_f_one_b_trace(2, 9), many = fixture::one_f_one_b_trace(2, 17);
  const auto names = [](const Trace& trace) {
    const Coloring coloring(trace, ColorBy::Microbatch);
    std::vector<std::string> all(8);
    for (OpId op{0}; op.value < trace.num_ops(); ++op.value) {
      const std::int32_t number = trace.microbatch[op.index()];
      if (number >= 0) all[static_cast<std::size_t>(number % 8)] = class_name(coloring, op);
    }
    return all;
  };
  EXPECT_EQ(names(nine)[0], "micro-batch 0, 8");
  EXPECT_EQ(names(nine)[1], "micro-batch 1");
  EXPECT_EQ(names(many)[0], "micro-batch 0, 8 …");
  EXPECT_EQ(names(many)[7], "micro-batch 7, 15");
}

TEST(Coloring, CostLevelsAreNamedAndUnknownOnesAreNeither) {
  Trace trace = chunked({{0}, {1}}, 3);
  std::vector<std::uint8_t> level;
  for (std::int32_t op = 0; op < trace.num_ops(); ++op)
    level.push_back(static_cast<std::uint8_t>(op % 5));
  trace.cost_level = std::move(level);
  const Coloring coloring(trace, ColorBy::CostLevel);
  for (OpId op{0}; op.value < trace.num_ops(); ++op.value) {
    EXPECT_EQ(class_name(coloring, op),
              op.value % 5 < 4 ? std::string(kCostLevelNames[op.index() % 5]) : "neither");
  }
}

// A stage of three Mamba layers of 20 ns and one of attention of 100: mostly attention, drawn as
// three fifths of the one behind the other's. Its letter is the word's second where another has the
// first.
TEST(Coloring, LayersAreOfTheKindThatTakesMostAndStripedByAll) {
  Trace trace = chunked({{0}, {1}}, 1);
  const auto text = [&](std::string one) {
    trace.strings.push_back(std::move(one));
    return static_cast<TraceString>(trace.strings.size() - 1);
  };
  std::vector<TraceBody> bodies;
  std::vector<TraceNode> nodes;
  const auto body = [&](const std::string& name, std::int64_t time) {
    const auto first = static_cast<std::int32_t>(nodes.size());
    nodes.push_back({.name = text("all"), .time_ns = time});
    nodes.push_back({.name = text("beside"), .overlapped = 1, .time_ns = 1000});
    bodies.push_back({.name = text(name), .node_begin = first, .node_end = first + 2});
  };
  body("embedding F", 10);
  body("layer (mamba2) F", 20);
  body("layer (MLP, attention) with experts F, slice 1", 100);
  body("head F", 1);
  std::vector<std::int32_t> begin(trace.classes.size() + 1);
  std::vector<TraceBodyRun> runs;
  for (std::size_t c = 0; c < trace.classes.size(); ++c) {
    begin[c] = static_cast<std::int32_t>(runs.size());
    const TraceClass& of = trace.classes[c];
    if (of.kind == OpKind::Forward && of.stage.value == 0) {
      runs.insert(runs.end(), {{.body = 1, .count = 3}, {.body = 2, .count = 1}});
    } else if (of.kind == OpKind::Forward) {
      runs.insert(runs.end(), {{.body = 1, .count = 1}, {.body = 3, .count = 1}});
    }
  }
  begin.back() = static_cast<std::int32_t>(runs.size());
  trace.nodes = std::move(nodes);
  trace.bodies = std::move(bodies);
  trace.runs = std::move(runs);
  trace.run_begin = std::move(begin);
  const Coloring coloring(trace, ColorBy::Layer);
  const OpId mixed = trace.class_of({0}).kind == OpKind::Forward ? OpId{0} : OpId{1};
  EXPECT_EQ(class_name(coloring, mixed), "L: MLP, attention with experts");
  EXPECT_EQ(coloring.letter(coloring.classes()[mixed.index()]), 'L');
  const std::vector<Coloring::Stripe> stripes = coloring.stripes(mixed);
  ASSERT_EQ(stripes.size(), 2u);
  EXPECT_DOUBLE_EQ(stripes[0].end, 60.0 / 160);
  EXPECT_DOUBLE_EQ(stripes[1].end, 1);
  EXPECT_EQ(stripes[1].fill, coloring.fill(mixed, coloring.classes()[mixed.index()], Theme::Light));
  for (OpId op{0}; op.value < trace.num_ops(); ++op.value) {
    const TraceClass& of = trace.class_of(op);
    if (of.kind != OpKind::Forward) {
      EXPECT_EQ(class_name(coloring, op), "neither");
      EXPECT_TRUE(coloring.stripes(op).empty());
    } else if (of.stage.value == 1) {
      EXPECT_EQ(class_name(coloring, op), "M: mamba2");
    }
  }
}

TEST(Coloring, DifferencesFallIntoStepsOfTheirSize) {
  const Trace trace = chunked({{0}}, 4);
  std::vector<std::int64_t> elsewhere;
  for (std::size_t op = 0; op < trace.start_ns.size(); ++op)
    elsewhere.push_back(trace.end_ns[op] - trace.start_ns[op]);
  elsewhere[0] = -1;
  elsewhere[1] = elsewhere[1] * 10 / 11;  // 10 % longer here
  elsewhere[2] *= 4;                      // 75 % shorter
  const Coloring coloring(trace, ColorBy::Difference, elsewhere);
  EXPECT_EQ(class_name(coloring, {0}), "not in the other");
  EXPECT_EQ(class_name(coloring, {1}), "+12 %");  // of the steps of 6.25 % the nearest
  EXPECT_EQ(class_name(coloring, {2}), "-25 % and more");
  EXPECT_EQ(class_name(coloring, {3}), "equal (3 %)");
}

// Pixel columns of every coloring hold exactly the time of its classes, and all colorings the same
// time as a whole.
TEST(Coloring, SharesAreExactInEveryColumn) {
  const Trace trace = fixture::full_trace(4, 60);
  const std::int32_t lanes[] = {0, trace.slots, 2 * trace.slots};
  std::mt19937 random(3);
  for (std::size_t by = 0; by + 1 < kNumColorings; ++by) {
    const Coloring coloring(trace, static_cast<ColorBy>(by));
    const TraceIndex index(trace, coloring.classes());
    for (int view = 0; view < 20; ++view) {
      const auto begin =
          static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(trace.end.value - 1));
      const std::int64_t end =
          begin + 1 +
          static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(trace.end.value - begin));
      Frame frame;
      layout(index, {.begin = {begin}, .end = {end}, .width_px = 50}, lanes, frame);
      for (const LaneFrame& lane : frame.lanes) {
        std::array<std::int64_t, kNumKinds> drawn{}, expected{};
        for (std::size_t c = 0; c < frame.num_columns(); ++c) {
          const auto times = frame.column(lane.ops, c);
          for (std::size_t k = 0; k < times.size(); ++k) drawn[lane.ops.kinds[k]] += times[k];
        }
        for (const Box& box : frame.boxes_of(lane)) {
          if (!box.idle) drawn[box.kind] += box.end - box.begin;
        }
        for (std::int32_t op = 0; op < trace.num_ops(); ++op) {
          if (trace.lane_of({op}) != lane.lane) continue;
          const auto i = static_cast<std::size_t>(op);
          const std::int64_t inside =
              std::min(trace.end_ns[i], end) - std::max(trace.start_ns[i], begin);
          const Kind kind = coloring.classes().empty() ? kind_of(trace.class_of({op}).kind)
                                                       : coloring.classes()[i];
          expected[kind] += std::max<std::int64_t>(0, inside);
        }
        EXPECT_EQ(drawn, expected) << kColorByNames[by];
      }
    }
    const Summary sum = summarize(index, 0, trace.end.value, 0, trace.num_rows());
    double share = 0;
    for (const LegendEntry& entry : legend(sum, coloring, Theme::Light)) share += entry.share;
    EXPECT_NEAR(share, 1, 1e-12) << kColorByNames[by];
  }
}

// The hues differ for every kind of eye, as those of kinds do.
TEST(Coloring, ClassesAreToldApartByColourBlindEyes) {
  const Trace trace = chunked({{0, 1, 2, 3, 4, 5, 6, 7}}, 1);
  const Coloring coloring(trace, ColorBy::Chunk);
  std::set<std::string> names;
  for (std::int32_t a = 1; a <= 8; ++a) {
    for (std::int32_t b = 1; b < a; ++b) {
      const KindStyle x = coloring.style(static_cast<Kind>(a), Theme::Light),
                      y = coloring.style(static_cast<Kind>(b), Theme::Light);
      names.insert(std::string(x.name));
      for (std::size_t eye = 0; eye < kEyes.size(); ++eye) {
        EXPECT_GE(distance(seen(x.fill, kEyes[eye]), seen(y.fill, kEyes[eye])), 10)
            << x.name << " and " << y.name << " for eye " << eye;
      }
    }
  }
  EXPECT_EQ(names.size(), 7u);
}

// However narrow: a label is part of the op's name that is still true. Where a rank has several
// chunks a colour must say which; a number alone is the micro-batch's.
TEST(Labels, NeverLieWhenTheyAreShort) {
  const Trace trace = chunked({{0, 2}, {1, 3}}, 12);
  std::vector<std::unique_ptr<Coloring>> colorings;
  for (std::size_t by = 0; by + 1 < kNumColorings; ++by)
    colorings.push_back(std::make_unique<Coloring>(trace, static_cast<ColorBy>(by)));
  int shortened = 0;
  for (OpId op{0}; op.value < trace.num_ops(); ++op.value) {
    const std::string name = op_name(trace, op);
    for (const auto& coloring : colorings) {
      const bool tells_chunk = coloring->by() == ColorBy::Kinds || coloring->by() == ColorBy::Chunk;
      for (int width = 0; width < 60; ++width) {
        const std::string label = label_for(trace, *coloring, op, width);
        EXPECT_LE(text_width(label, TextSize::Small), width);
        if (label.empty() || label == name) continue;
        ++shortened;
        EXPECT_TRUE(tells_chunk) << label;
        EXPECT_TRUE(name.ends_with(label)) << name << " " << label;
        const bool number = label.find_first_not_of("0123456789") == std::string::npos;
        if (number) {
          EXPECT_EQ(label, std::to_string(trace.microbatch[op.index()]));
          EXPECT_EQ(coloring->by(), ColorBy::Kinds);
        }
      }
    }
  }
  EXPECT_GT(shortened, 100);
  // The bucket's letter alone would say nothing.
  const Trace step = fixture::one_f_one_b_trace(2, 2);
  const Coloring coloring(step);
  for (OpId op{0}; op.value < step.num_ops(); ++op.value) {
    if (step.class_of(op).kind == OpKind::OptimizerStep) {
      EXPECT_EQ(label_for(step, coloring, op, 12), "");
    }
  }
}

// By kind, chunks of a rank have shades of their own, and the legend has them.
TEST(Coloring, LaterChunksAreLighter) {
  const Trace trace = chunked({{0, 2, 4}, {1, 3, 5}}, 2);
  const Coloring coloring(trace);
  const Kind forward = kind_of(OpKind::Forward);
  std::set<std::uint8_t> reds;
  for (OpId op{0}; op.value < trace.num_ops(); ++op.value) {
    if (trace.class_of(op).kind != OpKind::Forward) continue;
    reds.insert(coloring.fill(op, forward, Theme::Light).red);
    EXPECT_GE(contrast(text_on(coloring.fill(op, forward, Theme::Light)),
                       coloring.fill(op, forward, Theme::Light)),
              4.5);
  }
  EXPECT_EQ(reds.size(), 3u);
  EXPECT_EQ(coloring.shades(Theme::Light).size(), 3u);
  const TraceIndex index(trace);
  const std::string picture = svg(figure(index, {}));
  EXPECT_NE(picture.find("chunk 0"), std::string::npos);
  const std::string by_chunk = svg(figure(index, {.color_by = ColorBy::Chunk}));
  EXPECT_NE(by_chunk.find("chunk 2 "), std::string::npos);
}

}  // namespace
}  // namespace rehearse::viz
