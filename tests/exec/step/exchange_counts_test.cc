// SPDX-License-Identifier: Apache-2.0
// Bytes of every collective, those inside ops too: what a trace says, what a report says, and what
// was counted where exchanges are performed, for every layout of the matrix.
#include <map>
#include <span>
#include <utility>

#include "schedules/body/body_proof.h"
#include "schedules/ranks/group_key.h"
#include "schedules/trace/collectives_inside.h"
#include "sim/predict/predict.h"
#include "sim/predict/predicted_trace.h"
#include "tests/exec/step/layouts.h"

namespace rehearse::exec {
namespace {

struct Sum {
  std::int64_t count = 0, bytes = 0;
  bool operator==(const Sum&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Sum& sum) {
  return out << sum.count << " x, " << sum.bytes << " B";
}
// A gather of parameters is one of any kind.
using Sums = std::map<std::pair<std::string, std::string>, Sum>;

void add(Sums& sums, std::string_view group, OpKind kind, Sum of) {
  const OpKind as = kind == OpKind::Unshard ? OpKind::AllGather : kind;
  Sum& sum = sums[{std::string(group), std::string(traits(as).name)}];
  sum.count += of.count;
  sum.bytes += of.bytes;
}
void take_most(Sums& most, const Sums& sums) {
  for (const auto& [key, sum] : sums) {
    Sum& of = most[key];
    if (sum.bytes > of.bytes) of = sum;
  }
}

// Of the rank of this process that exchanged most, in the second of two steps.
Result<Sums> counted(const Scenario& scenario) {
  const Transformer& model = scenario.model;
  Plan plan = scenario.plan;
  const Result<Schedule> lowered = lower_for_run(model, plan);
  if (!lowered) return lowered.error();
  const Backend backend = make_cpu_backend();
  const Result<std::unique_ptr<Interpreter>> made =
      Interpreter::create({model, plan}, lowered.value(), backend, {});
  if (!made) return made.error();
  Interpreter& process = *made.value();
  TrainOptions options = scenario.train;
  options.steps = 2;
  process.initialise(initial_values(model, options.seed));
  const Result<Data> data = Data::open("synthetic", model.vocabulary, options.seed);
  if (!data) return data.error();
  const Result<std::vector<StepReport>> steps =
      train(process, plan, options, data.value(), nullptr);
  if (!steps) return steps.error();
  Sums sums;
  for (const CollectiveCount& one : process.collectives()) {
    add(sums, traits(one.group).name, one.kind, {one.count, one.bytes});
  }
  return sums;
}

Sums of_report(const sim::Prediction& prediction) {
  Sums sums;
  for (const sim::CommunicationRow& row : prediction.communication) {
    const sim::Traffic& sent = row.traffic;
    if (sent.group == GroupKind::Pipeline) continue;
    add(sums, traits(sent.group).name, sent.kind, {sent.count, sent.bytes});
  }
  return sums;
}

Sums of_row(const Trace& trace, RankClass row) {
  Sums sums;
  for (const CollectiveSum& one : collectives_of(trace, row)) {
    add(sums, one.group, one.kind, {one.count, one.bytes});
  }
  return sums;
}
Sums of_trace(const Trace& trace) {
  Sums most;
  for (std::int32_t row = 0; row < trace.num_rows(); ++row) take_most(most, of_row(trace, {row}));
  return most;
}

// A row of the report is of the rank that spends the most time, which is not always the one with
// the most bytes (an end of a pipeline: few large sums there, many small ones here).
void expect_reported(const Sums& report, const Trace& trace) {
  EXPECT_EQ(report.size(), of_trace(trace).size());
  for (const auto& [key, sum] : report) {
    bool found = false;
    for (std::int32_t row = 0; row < trace.num_rows(); ++row) {
      const Sums sums = of_row(trace, {row});
      const auto same = sums.find(key);
      found = found || (same != sums.end() && same->second == sum);
    }
    EXPECT_TRUE(found) << key.first << ' ' << key.second << ": " << sum;
  }
}

// The proof counts the same inside ops, of the rank that has most.
void expect_proved(const Scenario& scenario, const Trace& trace) {
  Plan plan = scenario.plan;
  const Schedule lowered = lower_for_run(scenario.model, plan).value();
  const InsideProof proof = prove_inside(lowered, {scenario.model, plan});
  EXPECT_EQ(proof.fault, "");
  Sums proved, most;
  for (const InsideSum& one : proof.sums) {
    add(proved, traits(kind_along(one.axis)).name, one.kind, {one.count, one.bytes});
  }
  for (std::int32_t row = 0; row < trace.num_rows(); ++row) {
    Sums sums;
    for (const CollectiveSum& one : collectives_of(trace, {row})) {
      if (one.inside_count > 0) {
        add(sums, one.group, one.kind, {one.inside_count, one.inside_bytes});
      }
    }
    take_most(most, sums);
  }
  EXPECT_EQ(proved, most);
}

// In the order of a row's ops, and within each in the order in which they begin.
void expect_order(const Trace& trace, const Sums& sums) {
  Sums inside;
  for (OpId op{0}; op.value < trace.num_ops(); ++op.value) {
    if (trace.row_of(op).value != 0) break;
    std::int64_t last = trace.start_ns[op.index()];
    for (const InsideCollective& one : collectives_inside(trace, op)) {
      EXPECT_GE(one.begin_ns, last);
      EXPECT_GE(one.end_ns, one.begin_ns);
      EXPECT_LE(one.end_ns, trace.end_ns[op.index()]);
      last = one.begin_ns;
      add(inside, traits(one.group).name, one.kind, {1, one.bytes});
    }
  }
  for (const CollectiveSum& one : collectives_of(trace, {0})) {
    if (one.inside_count == 0) continue;
    const auto found = inside.find({std::string(one.group), std::string(traits(one.kind).name)});
    ASSERT_NE(found, inside.end());
    EXPECT_EQ(found->second, (Sum{one.inside_count, one.inside_bytes}));
  }
  for (const auto& [key, sum] : inside) EXPECT_TRUE(sums.contains(key));
}

TEST(ExchangeCounts, TraceReportAndWhatWasCountedAgree) {
  int with_inside = 0;
  for (const Cell& cell : kLayouts) {
    SCOPED_TRACE(cell.name);
    const Result<Scenario> scenario =
        layout_scenario(model_text(cell.family), cell.plan, "dgx-a100-80gb");
    ASSERT_TRUE(scenario) << scenario.error().message;
    const sim::Cluster cluster = sim::read_cluster(scenario.value().cluster).value();
    const Result<Sums> ran = counted(scenario.value());
    ASSERT_TRUE(ran) << ran.error().message;
    const Result<sim::Prediction> predicted = sim::predict(scenario.value(), cluster);
    ASSERT_TRUE(predicted) << predicted.error().message;
    const Trace trace = sim::predicted_trace(predicted.value(), scenario.value(), cluster);
    expect_reported(of_report(predicted.value()), trace);
    EXPECT_EQ(of_trace(trace), ran.value());
    expect_order(trace, ran.value());
    expect_proved(scenario.value(), trace);
    with_inside += trace.meetings.empty() ? 0 : 1;
  }
  EXPECT_GE(with_inside, 30);
}

// Faults planted in a body in pieces, and in who runs it, are found.
TEST(InsideProof, FindsWhatIsWrong) {
  Scenario scenario =
      layout_scenario(Family::Gpt2,
                      {"tensor_parallel=2", "sequence_parallel=true", "context_parallel=2",
                       "overlap.tensor_parallel=true", "overlap.tensor_parallel_chunks=2"})
          .value();
  const Layout layout{scenario.model, scenario.plan};
  const Body sound = make_body(layout, {.segment = SegmentKind::Layer});
  EXPECT_EQ(body_fault(sound), "");
  const auto is_piece = [](const Node& node) { return node.pieces > 1; };
  std::int32_t found = 0;
  for (std::size_t n = 0; n < sound.nodes.size(); ++n) {
    if (!is_piece(sound.nodes[n])) continue;
    Body body = sound;
    if (collective_kind(sound.nodes[n].kind()) != OpKind::Forward) {
      body.nodes[n].until = static_cast<std::int32_t>(n + 5);  // past the next one
      EXPECT_NE(body_fault(body), "") << n;
    } else {
      body.nodes[n].piece = static_cast<std::int16_t>(1 - body.nodes[n].piece);
      EXPECT_NE(body_fault(body), "") << n;
    }
    ++found;
  }
  EXPECT_GE(found, 16);
  Schedule schedule = lower_for_run(scenario.model, scenario.plan).value();
  EXPECT_EQ(prove_inside(schedule, layout).fault, "");
  // Another row of the same position that runs the same, and then something else.
  const std::vector<Op> program(schedule.program({0}).begin(), schedule.program({0}).end());
  const std::size_t first = schedule.ops.size();
  schedule.rows.push_back(schedule.rows.front());
  schedule.ops.insert(schedule.ops.end(), program.begin(), program.end());
  schedule.row_begin.push_back(static_cast<std::int32_t>(schedule.ops.size()));
  EXPECT_EQ(prove_inside(schedule, layout).fault, "");
  const std::span<Op> last = std::span(schedule.ops).subspan(first);
  const auto forward = std::ranges::find(last, OpKind::Forward, &Op::kind);
  ASSERT_NE(forward, last.end());
  forward->microbatch = {7};
  EXPECT_NE(prove_inside(schedule, layout).fault, "");
}

}  // namespace
}  // namespace rehearse::exec
