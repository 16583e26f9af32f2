// SPDX-License-Identifier: Apache-2.0
// Orders and forms of transfers: what they cost by closed form, what is grouped, and that none of
// them hangs.
#include <gtest/gtest.h>

#include <map>

#include "schedules/ir/stage_index.h"
#include "schedules/order/registry.h"
#include "schedules/passes/lower.h"
#include "schedules/passes/planned/plan_order.h"
#include "schedules/proof/validate.h"
#include "schedules/scenario/plan_names.h"
#include "schedules/scenario/scenario.h"
#include "sim/engine/sweep.h"

namespace rehearse::sim {
namespace {

constexpr std::int64_t kForward = 1000, kBackward = 2000, kTransfer = 100;

// What the closed forms are made of: a stage's forward and backward, a transfer; all else nothing.
std::int64_t time_of(const Op& op) {
  switch (op.kind) {
    case OpKind::Forward:
      return kForward;
    case OpKind::Backward:
      return kBackward;
    case OpKind::InputGradient:
    case OpKind::WeightGradient:
      return kBackward / 2;
    case OpKind::Overlap:
      return kForward + kBackward;
    case OpKind::Send:
    case OpKind::Recv:
      return kTransfer;
    default:
      return 0;
  }
}

struct Case {
  std::string schedule = "1f1b";
  int positions = 4, chunks = 1, microbatches = 32;
  std::string form;  // of transfers; "blocking": grouped, where compute waits
  std::string more;  // keys
  std::string runtime = "megatron";
};

Result<Scenario> read(const Case& of) {
  const bool blocking = of.form == "blocking";
  const std::string text =
      R"({"model": {"model_type": "gpt2", "n_embd": 64, "n_layer": 64, "n_head": 4, "n_positions": 64,
      "vocab_size": 256}, "cluster": "dgx-a100-80gb", "plan": {"micro_batch": 1, "sequence_length": 64,
      "data_parallel": 1, "runtime": ")" +
      of.runtime + R"(", "schedule": ")" + of.schedule + R"(", "pipeline_parallel": )" +
      std::to_string(of.positions) + R"(, "virtual_stages": )" + std::to_string(of.chunks) +
      R"(, "global_batch": )" + std::to_string(of.microbatches) + R"(, "transfers": ")" +
      (blocking ? "grouped" : of.form) + R"(", "overlap": {"pipeline": )" +
      (blocking || of.form == "serial" ? "false" : "true") + "}" + of.more + "}}";
  return parse_scenario(text, "forms.json", 1, {});
}

Schedule lowered(const Case& of) {
  Scenario scenario = read(of).value();
  const Result<Schedule> order = order_of(scenario.model, scenario.plan);
  EXPECT_TRUE(order) << of.schedule;
  const PriceOps price = [](const Schedule& drafted, const Layout&) {
    std::vector<std::int64_t> times;
    for (const Op& op : drafted.ops) times.push_back(time_of(op));
    return Result<std::vector<std::int64_t>>(std::move(times));
  };
  Result<Schedule> made = lower(order.value(), {scenario.model, scenario.plan},
                                {.price = price, .plan_arena = of.runtime == "rehearse"});
  EXPECT_TRUE(made) << of.schedule << ' ' << of.form;
  return std::move(made).value();
}

std::int64_t makespan(const Schedule& s) {
  std::map<std::int64_t, std::int32_t> known;
  CostTable costs;
  for (const Op& op : s.ops) {
    const auto [at, fresh] = known.try_emplace(time_of(op), std::ssize(costs.costs));
    if (fresh) costs.costs.push_back({.time = {time_of(op)}});
    costs.of_op.push_back(at->second);
  }
  const Result<Timeline> timeline = sweep(compile(s), costs);
  EXPECT_TRUE(timeline);
  std::int64_t last = 0;
  for (const Nanoseconds end : timeline.value().end) last = std::max(last, end.value);
  return last;
}

// Time of a steady round: whole periods of any of these pipelines lie between 32 and 64.
double round_time(Case of) {
  of.microbatches = 32;
  const std::int64_t few = makespan(lowered(of));
  of.microbatches = 64;
  return static_cast<double>(makespan(lowered(of)) - few) / 32;
}

// F + B + 2x: an inner position waits for what it sends in both directions, an end for one.
TEST(TransferForms, CoupledTransfersAddToEveryRound) {
  EXPECT_EQ(round_time({.positions = 2, .form = "blocking"}), 3100);
  EXPECT_EQ(round_time({.positions = 4, .form = "blocking"}), 3200);
  EXPECT_EQ(round_time({.positions = 8, .form = "blocking"}), 3200);
  // Beside compute they couple as much: both ops behind an exchange wait for all of it.
  EXPECT_EQ(round_time({.positions = 2, .form = "grouped"}), 3100);
  EXPECT_EQ(round_time({.positions = 4, .form = "grouped"}), 3200);
  EXPECT_EQ(round_time({.positions = 8, .form = "grouped"}), 3200);
}

// F + B + 2x (p-1)/p: the way of a micro-batch down and up is a circuit of p rounds, so that in
// plain 1F1B decoupling buys 2x/p.
TEST(TransferForms, DecouplingBuysAlmostNothingInPlainOneFOneB) {
  for (const char* form : {"time_sorted", "producer_order", "consumer_order"}) {
    EXPECT_EQ(round_time({.positions = 2, .form = form}), 3100) << form;
    EXPECT_EQ(round_time({.positions = 4, .form = form}), 3150) << form;
    EXPECT_EQ(round_time({.positions = 8, .form = form}), 3175) << form;
  }
}

// With slack a round is F + B: all of 2x is bought.
TEST(TransferForms, DecouplingBuysAllOfItWhereThereIsSlack) {
  for (const int positions : {4, 8}) {
    const Case eager{.schedule = "eager_1f1b", .positions = positions};
    const auto with = [&](Case of, const char* form) {
      of.form = form;
      return round_time(of);
    };
    EXPECT_EQ(with(eager, "time_sorted"), 3000) << positions;
    EXPECT_EQ(with(eager, "blocking"), 3200) << positions;
    // Every chunk takes F and B here, and sends: v rounds in one.
    const Case interleaved{.schedule = "interleaved_1f1b", .positions = positions, .chunks = 2};
    EXPECT_EQ(with(interleaved, "time_sorted"), 2 * 3000) << positions;
    EXPECT_EQ(with(interleaved, "blocking"), 2 * 3200) << positions;
  }
}

// Exchanges of 1F1B are the steady rounds of its inner gaps: of row r and the next, m - (p-1-r).
TEST(TransferForms, GroupedAreTheSteadyRounds) {
  const Schedule s = lowered({.positions = 4, .microbatches = 8, .form = "grouped"});
  std::map<std::int32_t, std::vector<OpId>> members;
  for (std::int32_t i = 0; i < s.num_ops(); ++i) {
    const Op& op = s.ops[static_cast<std::size_t>(i)];
    if (is_transfer(op.kind) && op.instance >= 0) members[op.instance].push_back({i});
  }
  std::map<std::int32_t, int> of_row;  // the upper one of both
  for (const auto& [exchange, ops] : members) {
    ASSERT_EQ(ops.size(), 4u);  // both ends of an activation and of a gradient
    const OpId first = ops[0], second = ops[1];
    EXPECT_EQ(second.value, first.value + 1);  // stand together, in both rows
    EXPECT_EQ(ops[3].value, ops[2].value + 1);
    std::int32_t row = 0;
    while (s.row_begin[static_cast<std::size_t>(row) + 1] <= first.value) ++row;
    ++of_row[row];
  }
  EXPECT_EQ(of_row, (std::map<std::int32_t, int>{{0, 5}, {1, 6}, {2, 7}}));
}

// By the starts that the ops of the program have: a row's transfers stand in the order in which
// what they carry is made; or taken, where nothing else decides.
TEST(TransferForms, OrdersAreThoseOfTheirNames) {
  for (const std::string form : {"producer_order", "consumer_order"}) {
    for (const char* schedule : {"1f1b", "gpipe", "eager_1f1b", "zb_h1"}) {
      const Schedule s = lowered({.schedule = schedule, .positions = 4, .form = form});
      std::vector<std::int64_t> made(s.carried.size()), taken(s.carried.size());
      for (std::int32_t i = 0; i < s.num_ops(); ++i) {
        const Op& op = s.ops[static_cast<std::size_t>(i)];
        for (const Operand& operand : s.operands_of({i})) {
          if (is_transfer(op.kind)) continue;
          for (std::int32_t t = s.row_begin[0]; t < s.num_ops(); ++t) {
            const Op& other = s.ops[static_cast<std::size_t>(t)];
            if (!is_transfer(other.kind)) continue;
            const Operand& carries = s.operands_of({t})[0];
            if (carries.value != operand.value) continue;
            if (other.kind == OpKind::Send && operand.access != Access::Read) {
              made[other.match.index()] = op.key + time_of(op);
            }
            if (other.kind == OpKind::Recv && operand.access == Access::Read &&
                taken[other.match.index()] == 0) {
              taken[other.match.index()] = op.key;
            }
          }
        }
      }
      const std::vector<std::int64_t>& wanted = form == "producer_order" ? made : taken;
      for (RankClass row{0}; row.value < s.num_rows(); ++row.value) {
        std::int64_t before = 0;
        for (const Op& op : s.program(row)) {
          if (!is_transfer(op.kind)) continue;
          EXPECT_GE(wanted[op.match.index()], before) << form << ' ' << schedule;
          before = wanted[op.match.index()];
        }
      }
    }
  }
}

// The validator's proof, of every order under every form; of our runtime its arena too.
TEST(TransferForms, NoneHangs) {
  int proved = 0;
  for (const ScheduleInfo& info : schedule_table()) {
    for (const char* form :
         {"time_sorted", "producer_order", "consumer_order", "grouped", "blocking", "serial"}) {
      for (const char* runtime : {"megatron", "rehearse"}) {
        for (const int positions : {2, 4}) {
          const bool sliced = std::string(info.name).starts_with("seq_");
          const Case of{.schedule = std::string(info.name),
                        .positions = positions,
                        .chunks = info.chunks == ChunkRule::Many ? 2 : 1,
                        .microbatches = 8,
                        .form = form,
                        .more = sliced ? R"(, "sequence_slices": 2)" : "",
                        .runtime = runtime};
          if (!read(of)) continue;  // no legal plan: one stage, or a form that the runtime has not
          const Validation proof = validate(lowered(of));
          EXPECT_TRUE(proof.sound())
              << info.name << ' ' << form << ' ' << runtime << ' ' << positions << ": "
              << (proof.sound() ? "" : proof.violations[0].message);
          ++proved;
        }
      }
    }
  }
  EXPECT_GE(proved, 300);
}

TEST(TransferForms, AreWhatTheRuntimeDoesWhereNothingIsSaid) {
  const auto form = [](const std::string& keys) {
    const Result<Scenario> read = parse_scenario(
        R"({"model": "gpt2-124m", "cluster": "dgx-a100-80gb", "plan": {"pipeline_parallel": 4,
        "micro_batch": 1, "global_batch": 8, "sequence_length": 512, )" +
            keys + "}}",
        "default.json", 1, {});
    EXPECT_TRUE(read) << (read ? "" : read.error().message);
    return std::string(name_of(read.value().plan.transfers));
  };
  EXPECT_EQ(form(R"("runtime": "megatron")"), "grouped");  // batch_isend_irecv, and waits
  EXPECT_EQ(form(R"("runtime": "megatron", "virtual_stages": 3)"), "time_sorted");
  EXPECT_EQ(form(R"("runtime": "megatron_deepspeed")"), "serial");
  EXPECT_EQ(form(R"("runtime": "torchtitan")"), "time_sorted");
  EXPECT_EQ(form(R"("runtime": "rehearse")"), "time_sorted");
}

TEST(TransferForms, ContradictionsAreRefusedInOneLine) {
  const auto refusal = [](const std::string& keys) {
    const Result<Scenario> read = parse_scenario(
        R"({"model": "gpt2-124m", "cluster": "dgx-a100-80gb", "plan": {"pipeline_parallel": 4,
        "micro_batch": 1, "global_batch": 8, "sequence_length": 512, )" +
            keys + "}}",
        "refused.json", 1, {});
    EXPECT_FALSE(read) << keys;
    return read ? std::string() : read.error().message;
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(refusal(R"("transfers": "time_sorted", "overlap": {"pipeline": false})"),
                  "plan.transfers: time_sorted is an order beside compute, which overlap.pipeline "
                  "excludes"));
  EXPECT_TRUE(has(refusal(R"("transfers": "serial", "overlap": {"pipeline": true})"),
                  "plan.transfers: serial keeps compute waiting, which overlap.pipeline excludes"));
  EXPECT_TRUE(has(refusal(R"("transfers": "consumer_order", "synchronous_launch": true)"),
                  "which synchronous_launch excludes"));
  EXPECT_TRUE(has(refusal(R"("transfers": "serial", "runtime": "rehearse")"),
                  "in runtime rehearse no compute waits for a transfer"));
}

}  // namespace
}  // namespace rehearse::sim
