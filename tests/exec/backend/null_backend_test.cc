// SPDX-License-Identifier: Apache-2.0
// The interpreter without a device: what it asks a backend for, in which order.
#include <map>
#include <tuple>

#include "exec/backend/null_backend.h"
#include "tests/exec/step/layout_case.h"

namespace rehearse::exec {
namespace {

struct Recorded {
  Schedule schedule;
  Recording calls;
  std::vector<std::pair<RankClass, std::int32_t>> rows;  // of every rank: its row, its number
};

Recorded record(const std::vector<std::string>& plan_keys, bool asynchronous = true) {
  Recorded out;
  const Result<Scenario> scenario = layout_scenario(Family::Gpt2, plan_keys);
  EXPECT_TRUE(scenario) << scenario.error().message;
  Plan plan = scenario.value().plan;
  Result<Schedule> schedule = lower_for_run(scenario.value().model, plan);
  EXPECT_TRUE(schedule) << schedule.error().message;
  out.schedule = std::move(schedule).value();
  Backend backend{std::make_unique<NullDevice>(asynchronous, &out.calls),
                  std::make_unique<NullKernels>(&out.calls)};
  const auto made = Interpreter::create({scenario.value().model, plan}, out.schedule, backend, {});
  EXPECT_TRUE(made) << made.error().message;
  const Result<StepResult> ran = made.value()->run({.train = scenario.value().train});
  EXPECT_TRUE(ran) << ran.error().message;
  for (const auto& rank : made.value()->local().ranks)
    out.rows.emplace_back(rank->row, rank->rank.value);
  return out;
}

const std::vector<std::vector<std::string>> kLayouts{
    {"pipeline_parallel=4", "schedule=interleaved_1f1b", "virtual_stages=2"},
    {"tensor_parallel=2", "data_parallel=2", "pipeline_parallel=2", "zero_stage=3",
     "sequence_parallel=true"},
    {"pipeline_parallel=2", "data_parallel=4", "schedule=zb_h1", "zero_stage=1"},
    {"pipeline_parallel=4", "schedule=dualpipe", "data_parallel=1"},
    {"tensor_parallel=4", "data_parallel=2", "zero_stage=2"}};

// 8 layers have 16 residual sums per micro-batch: each is one pass with the norm behind it, but for
// the last, whose norm writes where an operand of the sum may lie.
TEST(NullBackend, TakesTheNormOfASumInOnePass) {
  std::map<std::string, int> calls;
  for (const RecordedCall& call : record({}).calls) ++calls[std::string(call.what)];
  const int microbatches = calls["embed"];
  ASSERT_GT(microbatches, 0);
  EXPECT_EQ(calls["add_layer_norm"], 15 * microbatches);
  EXPECT_EQ(calls["add_residual"], microbatches);
  EXPECT_EQ(calls["layer_norm"], 2 * microbatches);  // the first and the final one
}

// Every op of every rank begins and ends once; on a stream in program order; after what it waits
// for was issued.
TEST(NullBackend, IssuesEveryOpOnceInOrder) {
  for (const auto& keys : kLayouts) {
    const Recorded r = record(keys);
    std::map<std::pair<std::int32_t, std::int32_t>, int> begun, ended;  // (rank, op)
    std::map<std::pair<std::int32_t, int>, std::int32_t> last;          // (rank, stream): op
    for (const RecordedCall& call : r.calls) {
      if (call.what == "begin") {
        EXPECT_EQ(1, (++begun[{call.lane.rank, call.op.value}]));
        std::int32_t& previous =
            last.try_emplace({call.lane.rank, static_cast<int>(call.lane.stream)}, -1)
                .first->second;
        EXPECT_LT(previous, call.op.value);
        previous = call.op.value;
        for (const OpId wait : r.schedule.waits_of(call.op)) {
          EXPECT_EQ(1, (ended[{call.lane.rank, wait.value}])) << keys[0];
        }
      } else if (call.what == "end") {
        EXPECT_EQ(1, (++ended[{call.lane.rank, call.op.value}]));
      }
    }
    for (const auto& [row, rank] : r.rows) {
      for (std::int32_t i = r.schedule.row_begin[row.index()];
           i < r.schedule.row_begin[row.index() + 1]; ++i) {
        EXPECT_EQ(1, (ended[{rank, i}])) << keys[0];
      }
    }
  }
}

// A worker that could go on with a forward first sends what another rank may wait for: between the
// moment a transfer can begin and its beginning, no compute op begins.
TEST(NullBackend, TransfersGoBeforeCompute) {
  int transfers = 0, at_once = 0;
  for (const auto& keys : kLayouts) {
    const Recorded r = record(keys, false);
    std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> ended;  // (rank, op): call
    std::map<std::pair<std::int32_t, Stream>, std::size_t> last;         // (rank, stream): end
    std::vector<std::size_t> computes;                                   // calls that begin one
    for (std::size_t i = 0; i < r.calls.size(); ++i) {
      const RecordedCall& call = r.calls[i];
      if (call.what == "end") {
        ended[{call.lane.rank, call.op.value}] = last[{call.lane.rank, call.lane.stream}] = i;
      }
      if (call.what != "begin") continue;
      const OpKind kind = r.schedule.ops[call.op.index()].kind;
      if (is_compute(kind)) computes.push_back(i);
      if (kind != OpKind::Send && kind != OpKind::Recv) continue;
      std::size_t possible = last[{call.lane.rank, call.lane.stream}];
      for (const OpId wait : r.schedule.waits_of(call.op)) {
        possible = std::max(possible, ended[{call.lane.rank, wait.value}]);
      }
      ++transfers;
      if (computes.empty() || computes.back() <= possible) ++at_once;
    }
  }
  EXPECT_GT(transfers, 100);
  EXPECT_EQ(at_once, transfers);
}

// Products between an op's begin and end count what the model needs: over the step of one rank,
// three times the forward's (input and weight gradients), logits included.
TEST(NullBackend, CountsTheModelsProducts) {
  const Recorded r = record({});
  std::map<std::string_view, std::int64_t> sum;
  for (const RecordedCall& call : r.calls) {
    sum[call.what] += call.counts[0] * call.counts[1] * call.counts[2];
  }
  // 8 layers, h 32: 12 h^2 per token and layer; 61 rows of the table; 8 samples of 16 tokens.
  const std::int64_t tokens = 8 * 16, layers = 8 * 12 * 32 * 32, head = 61 * 32;
  EXPECT_EQ(sum["linear"] + sum["linear_gelu"], tokens * layers);
  EXPECT_EQ(sum["linear_input"] + sum["linear_input_gelu"], tokens * layers);
  EXPECT_EQ(sum["linear_weight"] + sum["linear_weight_bias"], tokens * layers);
  for (const std::string_view of_the_head : {"logits", "logits_input", "logits_weight"}) {
    EXPECT_EQ(sum[of_the_head], tokens * head) << of_the_head;
  }
}

// Members of a group meet in the same order on every rank: exchanges of one instance never
// interleave with another's half done, and there are as many as the communication rows say.
TEST(NullBackend, AsksForEachCollectiveOnce) {
  const Recorded r = record({"tensor_parallel=2"});
  std::int64_t all_reduces = 0;
  for (const RecordedCall& call : r.calls) {
    if (call.what == "exchange" && call.kind == OpKind::AllReduce) ++all_reduces;
  }
  // Per micro-batch (8): 2 forward and 2 backward in each of 8 layers, 1 for the embedding, 3 in
  // the head (maxima, sums, d_input); then the norms over all ranks.
  EXPECT_EQ(all_reduces, 8 * (8 * 4 + 1 + 3) + 1);
}

}  // namespace
}  // namespace rehearse::exec
