// SPDX-License-Identifier: Apache-2.0
// Planned schedules take the best of the orders that they have: by simulated time, within memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <tuple>

#include "schedules/ir/placed_recompute.h"
#include "schedules/order/place_recompute.h"
#include "schedules/order/registry.h"
#include "schedules/passes/lower.h"
#include "schedules/passes/planned/plan_order.h"
#include "schedules/scenario/plan_line.h"
#include "schedules/scenario/scenario.h"
#include "schedules/timing/metrics.h"
#include "sim/predict/predict.h"
#include "sim/report/report.h"
#include "sim/report/report_notes.h"

namespace rehearse::sim {
namespace {

int pick(std::mt19937& random, std::initializer_list<int> choices) {
  return *(choices.begin() + std::uniform_int_distribution<std::ptrdiff_t>(
                                 0, static_cast<std::ptrdiff_t>(choices.size()) - 1)(random));
}
const char* pick(std::mt19937& random, std::initializer_list<const char*> choices) {
  return *(choices.begin() + std::uniform_int_distribution<std::ptrdiff_t>(
                                 0, static_cast<std::ptrdiff_t>(choices.size()) - 1)(random));
}

// A scenario without its schedule: what a person would write beside it.
std::string random_scenario(std::mt19937& random) {
  const int p = pick(random, {2, 2, 3, 4, 4, 5, 8}), d = pick(random, {1, 1, 2, 3});
  const int t = pick(random, {1, 1, 2}), micro = pick(random, {1, 1, 2, 4});
  const int m = pick(random, {1, 2, 3, 4, 6, 8, 8, 12, 16, 24, 32});
  const int hidden = pick(random, {256, 512, 1024, 2048, 4096, 6144});
  const int sequence = pick(random, {256, 512, 1024});
  std::string text = R"({"model": {"model_type": "gpt2", "n_embd": )" + std::to_string(hidden);
  text += ", \"n_layer\": " + std::to_string(pick(random, {5, 6, 7, 8, 12, 16}));
  text += ", \"n_head\": 8, \"n_positions\": 1024, \"vocab_size\": ";
  text += std::to_string(pick(random, {512, 8192, 50257})) + "}, \"cluster\": \"";
  text += pick(random, {"dgx-a100-80gb", "pcie-a100-80gb-8", "gcp-a3-highgpu-8g", "rtx4090-8",
                        "azure-nd96asr-a100-v4"});
  text += "\", \"gpus\": " + std::to_string(t * p * d) + ", \"plan\": {";
  text += "\"tensor_parallel\": " + std::to_string(t);
  text += ", \"pipeline_parallel\": " + std::to_string(p);
  text += ", \"micro_batch\": " + std::to_string(micro);
  text += ", \"global_batch\": " + std::to_string(micro * d * m);
  text += ", \"sequence_length\": " + std::to_string(sequence);
  text += ", \"zero_stage\": " + std::to_string(pick(random, {0, 0, 1, 2}));
  text += ", \"recompute\": \"" + std::string(pick(random, {"none", "selective", "full"})) + "\"";
  text += ", \"runtime\": \"" +
          std::string(pick(random, {"megatron", "megatron", "fsdp", "rehearse"})) + "\"}}";
  return text;
}

// The prediction of the text with this schedule written into it; none where it is not legal.
struct Told {
  double step_s = 0;
  bool fits = false;
  Plan plan;
};
std::optional<Told> told(const std::string& text, const std::string& schedule) {
  const Result<Scenario> scenario =
      parse_scenario(text, "random.json", 1, {.overrides = {"plan.schedule=" + schedule}});
  if (!scenario) return std::nullopt;
  const Result<Cluster> cluster = read_cluster(scenario.value().cluster);
  EXPECT_TRUE(cluster) << cluster.error().message;
  const Result<Prediction> made = predict(scenario.value(), cluster.value());
  if (!made) return std::nullopt;
  return Told{made.value().step_s, made.value().memory.fits, made.value().plan};
}

bool long_form() {
  const char* asked = std::getenv("REHEARSE_TEST_LONG");
  return asked != nullptr && std::string_view(asked) == "1";
}

TEST(AutoOrder, IsNeverSlowerThanAnyNamedOrderThatFitsInMemory) {
  std::mt19937 random(20251122);
  const int plans = long_form() ? 200 : 60;
  int compared = 0, named = 0, tight = 0;
  for (int trial = 0; compared < plans; ++trial) {
    ASSERT_LT(trial, 4 * plans) << "too few of the random scenarios are legal";
    const std::string text = random_scenario(random);
    const std::optional<Told> chosen = told(text, "auto");
    if (!chosen) continue;
    ++compared;
    EXPECT_FALSE(chosen->plan.order.empty()) << text;
    bool any_fits = false;
    for (const ScheduleInfo& info : schedule_table()) {
      if (info.planned) continue;
      const std::optional<Told> plain = told(text, std::string(info.name));
      if (!plain) continue;
      ++named;
      tight += plain->fits ? 0 : 1;
      if (!plain->fits) continue;
      any_fits = true;
      EXPECT_LE(chosen->step_s, plain->step_s * (1 + 1e-12))
          << info.name << " against " << chosen->plan.order << '\n'
          << text;
    }
    EXPECT_TRUE(chosen->fits || !any_fits) << chosen->plan.order << '\n' << text;
  }
  EXPECT_GT(named, 8 * plans);
  EXPECT_GT(tight, 0) << "nothing was too large: memory was not tried";
}

TEST(AutoOrder, ALargerMemoryLimitIsNeverSlower) {
  std::mt19937 random(7);
  int compared = 0;
  for (int trial = 0; trial < (long_form() ? 200 : 40); ++trial) {
    const std::string text = random_scenario(random);
    const std::optional<Told> one = told(text, "zb_1p"), two = told(text, "zb_2p");
    if (!one || !two || !one->fits) continue;
    ++compared;
    EXPECT_TRUE(two->fits) << text;
    EXPECT_LE(two->step_s, one->step_s * (1 + 1e-12)) << text;
  }
  EXPECT_GT(compared, 20);
}

// From 1 on a limit has the orders of all smaller ones to choose from.
TEST(AutoOrder, MoreMemoryIsNeverSlowerOverAGrid) {
  for (const char* schedule : {"zb_2p", "auto"}) {
    for (const int p : {2, 3, 4, 7}) {
      for (const int m : {2, 6, 16}) {
        double before = 0;
        for (const char* limit : {"1", "1.2", "1.25", "1.5", "1.8", "2", "3", "5"}) {
          const std::string text =
              R"({"model": {"model_type": "gpt2", "n_embd": 1024, "n_layer": 14, "n_head": 8,
              "n_positions": 1024, "vocab_size": 50257}, "cluster": "dgx-a100-80gb", "gpus": )" +
              std::to_string(p) + R"(, "plan": {"pipeline_parallel": )" + std::to_string(p) +
              R"(, "micro_batch": 1, "global_batch": )" + std::to_string(m) +
              R"(, "sequence_length": 512, "memory_limit": )" + limit + "}}";
          const std::optional<Told> answer = told(text, schedule);
          ASSERT_TRUE(answer) << text;
          if (before > 0) {
            EXPECT_LE(answer->step_s, before * (1 + 1e-12)) << schedule << ' ' << text;
          }
          before = answer->step_s;
        }
      }
    }
  }
}

// Where our runtime computes again, each order is tried with recomputation in its bubbles, too:
// what is taken is no slower than the same order with it inside the backwards, and fits where that
// does, whichever of the two the memory has room for.
TEST(AutoOrder, PlacesRecomputationWhereThatIsFasterAndFits) {
  std::mt19937 random(20261126);
  const int plans = long_form() ? 200 : 12;
  int compared = 0, placed = 0, tight = 0, shorter = 0;
  double most = 0;
  for (int trial = 0; compared < plans; ++trial) {
    ASSERT_LT(trial, 8 * plans);
    const std::string text = random_scenario(random);
    Result<Scenario> read =
        parse_scenario(text, "random.json", 1,
                       {.overrides = {"plan.schedule=auto", "plan.runtime=rehearse",
                                      std::string("plan.recompute=") +
                                          pick(random, {"selective", "full", "full"})}});
    if (!read) continue;
    Scenario scenario = std::move(read).value();
    scenario.file_cluster.reset();  // the cluster of the run is the one that is predicted
    Cluster cluster = read_cluster(scenario.cluster).value();
    const auto of = [&](const Plan& plan) {
      Scenario fixed = scenario;
      fixed.plan = plan;
      return predict(fixed, cluster);
    };
    const Result<Prediction> made = of(scenario.plan);
    if (!made) continue;
    ++compared;
    const auto other_way = [&](const Prediction& taken) {
      Plan plan = taken.plan;
      plan.places_recompute = !plan.places_recompute;
      Result<Prediction> other = of(plan);
      EXPECT_TRUE(other) << text;
      if (taken.memory.fits && other.value().memory.fits) {
        EXPECT_LE(taken.step_s, other.value().step_s * (1 + 1e-12)) << text;
      }
      return std::move(other).value();
    };
    const Prediction& taken = made.value();
    EXPECT_LE(taken.memory.fits ? taken.memory.peak_device : 0, cluster.capacity().value);
    if (taken.plan.planned_stages.empty()) continue;  // a named order without R: nothing to price
    const Prediction other = other_way(taken);
    if (!taken.plan.places_recompute) continue;
    ++placed;
    shorter += taken.step_s < 0.999 * other.step_s ? 1 : 0;
    most = std::max(most, 1 - taken.step_s / other.step_s);
    if (other.memory.peak_device >= taken.memory.peak_device) continue;
    // Memory between the two: then the other way, or another order, is what fits.
    cluster.gpu.usable_memory_gib =
        static_cast<double>(other.memory.peak_device / 2 + taken.memory.peak_device / 2) /
        1073741824.0;
    const Result<Prediction> less = of(scenario.plan);
    ASSERT_TRUE(less) << text;
    ++tight;
    EXPECT_TRUE(less.value().memory.fits) << text;
    EXPECT_LE(less.value().memory.peak_device, cluster.capacity().value) << text;
    EXPECT_LE(less.value().step_s, other.step_s * (1 + 1e-12)) << text;
  }
  std::printf(
      "%d plans, %d with recomputation in bubbles, %d shorter by more than 0.1 %%, up to "
      "%.1f %%; %d again in less memory\n",
      compared, placed, shorter, 100 * most, tight);
  EXPECT_GT(placed, plans / 4);
  EXPECT_GT(tight, 0);
}

// Per row the most bytes of slabs alive at once, as the lowered program has them: what forwards
// keep, what an R makes, what I leaves to W.
std::vector<std::int64_t> slab_peaks(const Schedule& s) {
  std::vector<std::int64_t> change(s.ops.size() + 1, 0), peaks;
  for (const Value& value : s.values) {
    const bool slab =
        value.kind == ValueKind::SavedForDgrad || value.kind == ValueKind::SavedForWgrad ||
        value.kind == ValueKind::LeftForWgrad || value.kind == ValueKind::RemadeForDgrad ||
        value.kind == ValueKind::RemadeForWgrad;
    if (!slab) continue;
    change[value.define.index()] += value.bytes.value;
    change[value.last_use.index() + 1] -= value.bytes.value;
  }
  for (RankClass row{0}; row.value < s.num_rows(); ++row.value) {
    std::int64_t alive = 0, most = 0;
    for (std::size_t i = s.first_op(row); i < s.first_op({row.value + 1}); ++i) {
      alive += change[i];
      most = std::max(most, alive);
    }
    peaks.push_back(most);
  }
  return peaks;
}
std::ptrdiff_t recomputes_of(const Schedule& order) {
  return std::ranges::count(order.ops, OpKind::Recompute, &Op::kind);
}

// What an R makes is alive until its backward, of all layers of the chunk, and counts to
// memory_limit as what forwards keep does: by the count of forwards alone, an order of a limit held
// more than it allows.
TEST(AutoOrder, CountsWhatIsComputedAgainInAdvanceToTheMemoryLimit) {
  for (const auto& [recompute, limit, within] :
       std::initializer_list<std::tuple<const char*, double, bool>>{{"selective", 1, true},
                                                                    {"full", 2, false}}) {
    const std::string text = R"({"model": {"model_type": "gpt2", "n_embd": 512, "n_layer": 8,
        "n_head": 8, "n_positions": 512, "vocab_size": 512}, "cluster": "dgx-a100-80gb", "gpus": 4,
        "plan": {"pipeline_parallel": 4, "micro_batch": 1, "global_batch": 8, "schedule": "auto",
        "sequence_length": 512, "runtime": "rehearse", "recompute": ")" +
                             std::string(recompute) + "\"}}";
    const Scenario scenario = parse_scenario(text, "t", 1, {}).value();
    const Transformer& model = scenario.model;
    Plan plan = scenario.plan;
    plan.order = "1f1b";
    plan.memory_limit = limit;
    const Schedule plain = order_of(model, plan).value();
    plan.places_recompute = true;
    const Schedule made = order_of(model, plan).value();
    ScheduleShape shape;
    fill_planned_times({model, plan}, shape);
    const Schedule freely =
        place_recompute(plain, {.stages = shape.stage_times, .transfer = shape.times.transfer});
    ASSERT_GT(recomputes_of(freely), 0);
    EXPECT_LT(recomputes_of(made), recomputes_of(freely));
    EXPECT_EQ(recomputes_of(made) > 0, within) << recompute << ' ' << limit;
    const Schedule lowered = lower(made, {model, plan}).value();
    const std::vector<std::int64_t> before = slab_peaks(lower(freely, {model, plan}).value()),
                                    now = slab_peaks(lowered);
    bool exceeded = false;
    for (std::size_t row = 0; row < now.size(); ++row) {
      std::int64_t kept = row > 0 ? Layout(model, plan).activation_bytes() : 0;
      for (const Value& value : lowered.values) {
        const bool saved =
            value.kind == ValueKind::SavedForDgrad || value.kind == ValueKind::SavedForWgrad;
        if (saved && value.stage.index() == row && value.microbatch.value == 0) {
          kept += value.bytes.value;
        }
      }
      const auto most = static_cast<std::int64_t>(limit * 4 * static_cast<double>(kept));
      EXPECT_LE(now[row], most) << recompute << ", position " << row;
      exceeded |= before[row] > most;
    }
    EXPECT_TRUE(exceeded) << "the old count held " << recompute << " too";
  }
}

// Left out, planned orders are tried with recomputation in their bubbles and without; false is
// heard.
TEST(AutoOrder, PlacesNoRecomputationWhereThePlanSaysSo) {
  const std::string text = R"({"model": "llama2-7b", "cluster": "dgx-h100", "gpus": 4,
      "plan": {"pipeline_parallel": 4, "micro_batch": 1, "global_batch": 8,
      "sequence_length": 2048, "schedule": "zb_1p", "recompute": "full", "runtime": "rehearse"}})";
  const auto of = [&](std::vector<std::string> overrides) {
    const Scenario s = parse_scenario(text, "t", 1, {.overrides = std::move(overrides)}).value();
    EXPECT_TRUE(s.warnings.empty()) << s.warnings.front();
    for (const Plan& candidate : order_candidates(s.model, s.plan)) {
      if (candidate.places_recompute) return true;
    }
    return false;
  };
  EXPECT_TRUE(of({}));
  EXPECT_FALSE(of({"plan.recompute_in_advance=false"}));
}

// A framework computes again inside its backwards. What an order with recomputation of its own
// would be worth there: the same kernels at the same prices, more memory, no longer a step, and a
// note that it is a question.
TEST(AutoOrder, PricesRecomputationInAdvanceForRuntimesThatDoNotPerformIt) {
  for (const char* runtime : {"megatron", "megatron_lm", "fsdp", "megatron_deepspeed_2024"}) {
    const std::string text = R"({"model": "llama2-7b", "cluster": "dgx-h100", "gpus": 4,
        "plan": {"pipeline_parallel": 4, "micro_batch": 1, "global_batch": 8,
        "sequence_length": 4096, "schedule": "1f1b", "recompute": "full", "runtime": ")" +
                             std::string(runtime) + "\"}}";
    const auto of = [&](bool ahead) {
      const Scenario scenario =
          parse_scenario(text, "t", 1,
                         {.overrides = {std::string("plan.recompute_in_advance=") +
                                        (ahead ? "true" : "false")}})
              .value();
      const Cluster cluster = read_cluster(scenario.cluster).value();
      Prediction made = predict(scenario, cluster).value();
      const std::vector<std::string> notes = notes_of(made, scenario, cluster);
      const bool said = std::ranges::any_of(notes, [](const std::string& note) {
        return note.find("plan.recompute_in_advance: this is what it would be worth") == 0;
      });
      EXPECT_EQ(said, ahead) << runtime;
      return made;
    };
    const Prediction fused = of(false), apart = of(true);
    EXPECT_GT(recomputes_of(apart.order), 0);
    EXPECT_EQ(plan_line(apart.plan), plan_line(fused.plan) + " in advance");
    EXPECT_LT(apart.step_s, fused.step_s) << runtime;
    EXPECT_EQ(apart.recomputed_flops, fused.recomputed_flops);
    EXPECT_GT(apart.memory.peak_device, fused.memory.peak_device) << runtime;
    EXPECT_EQ(apart.memory.ranks.size(), fused.memory.ranks.size());
    for (std::size_t r = 0; r < apart.memory.ranks.size(); ++r) {
      EXPECT_EQ(apart.memory.ranks[r].steady_allocated, fused.memory.ranks[r].steady_allocated);
    }
    // An R and its backward take what the backward takes that does both.
    const auto time_of = [](const Prediction& p, OpKind kind, Stage stage, bool behind) {
      const PlacedRecompute placed(p.schedule);
      for (std::int32_t i = 0; i < p.schedule.num_ops(); ++i) {
        const Op& op = p.schedule.ops[static_cast<std::size_t>(i)];
        if (op.kind != kind || op.stage != stage || placed.of(op) != behind) continue;
        const auto cost =
            static_cast<std::size_t>(p.pricing.table.of_op[static_cast<std::size_t>(i)]);
        return p.pricing.table.costs[cost].time.value;
      }
      return std::int64_t{0};
    };
    for (Stage stage{0}; stage.value < 3; ++stage.value) {
      const std::int64_t whole = time_of(fused, OpKind::Backward, stage, false),
                         again = time_of(apart, OpKind::Recompute, stage, true),
                         rest = time_of(apart, OpKind::Backward, stage, true);
      ASSERT_GT(again, 0);
      EXPECT_NEAR(static_cast<double>(again + rest), static_cast<double>(whole),
                  2e-3 * static_cast<double>(whole))
          << runtime << ", stage " << stage.value;
    }
  }
}

// A plan that was chosen holds the times that its order was planned for: who has it makes the same
// order again, whatever machine it is on.
TEST(AutoOrder, IsPlannedForPricedTimesAndMadeAgainFromThem) {
  const std::string text = R"({"model": "gpt2-124m", "cluster": "dgx-a100-80gb", "gpus": 4,
      "plan": {"pipeline_parallel": 4, "micro_batch": 2, "global_batch": 32,
      "sequence_length": 512, "schedule": "zb_2p"}})";
  const Scenario scenario = parse_scenario(text, "t", 1, {}).value();
  const Prediction made = predict(scenario, read_cluster(scenario.cluster).value()).value();
  Plan plan = made.plan;
  ASSERT_EQ(plan.planned_stages.size(), 4u);
  EXPECT_GT(plan.planned_transfer.value, 0);
  // The head makes the last stage longer than the second; a layer's B is about I + W.
  EXPECT_GT(plan.planned_stages[3].forward, plan.planned_stages[1].forward);
  EXPECT_EQ(content_hash(order_of(scenario.model, plan).value()), content_hash(made.order));
  for (StageTimes& times : plan.planned_stages) times.weight_gradient += Nanoseconds{50'000'000};
  EXPECT_NE(content_hash(order_of(scenario.model, plan).value()), content_hash(made.order));
}

// The case that was found: auto took 3.525 s and 6.2 GB where 1F1B took 2.131 s and 5.4 GB.
TEST(AutoOrder, TakesNoOrderWhoseEmbeddingAndHeadMakeItSlowerThan1F1B) {
  const std::string text = R"({"model": {"model_type": "gpt2", "n_embd": 512, "n_layer": 8,
      "n_head": 8, "n_positions": 4096, "vocab_size": 50257, "resid_pdrop": 0.1},
      "cluster": "azure-nd96asr-a100-v4", "gpus": 12, "plan": {"pipeline_parallel": 4,
      "data_parallel": 3, "micro_batch": 1, "global_batch": 96, "sequence_length": 4096,
      "sequence_parallel": true, "recompute": "selective", "precision": "fp16",
      "flash_attention": false, "runtime": "fsdp"}})";
  const std::optional<Told> chosen = told(text, "auto"), plain = told(text, "1f1b");
  ASSERT_TRUE(chosen && plain);
  EXPECT_LE(chosen->step_s, plain->step_s);
  EXPECT_TRUE(chosen->fits);
}

TEST(AutoOrder, KeepsToTheMemoryLimitThatIsAskedFor) {
  const std::string text = R"({"model": "gpt2-124m", "cluster": "dgx-a100-80gb", "gpus": 4,
      "plan": {"pipeline_parallel": 4, "micro_batch": 1, "global_batch": 16,
      "sequence_length": 512, "memory_limit": 0.5}})";
  const std::optional<Told> half = told(text, "auto");
  ASSERT_TRUE(half);
  const Transformer model =
      parse_scenario(text, "t", 1, {.overrides = {"plan.schedule=auto"}}).value().model;
  Plan plan = half->plan;
  const Schedule order = order_of(model, plan).value();
  const ScheduleMetrics metrics = measure(order, time_compute(order, {}).value());
  EXPECT_LE(metrics.largest_weighted_peak(), 0.5 * 4 * visited_chunks(order) + 1e-9)
      << half->plan.order;
}

// Planned orders have no slices: where slices are asked for, an order that has them is taken.
TEST(AutoOrder, KeepsToTheSlicesThatAreAskedFor) {
  const std::string text = R"({"model": {"model_type": "gpt2", "n_layer": 8},
      "cluster": "dgx-a100-80gb", "gpus": 2, "plan": {"pipeline_parallel": 2, "micro_batch": 1,
      "global_batch": 8, "sequence_length": 1024, "sequence_slices": 4}})";
  const std::optional<Told> taken = told(text, "auto");
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->plan.sequence_slices, 4);
}

TEST(AutoOrder, TheReportSaysWhichOrderWasTaken) {
  const std::string text = R"({"model": "gpt2-124m", "cluster": "dgx-a100-80gb", "gpus": 4,
      "plan": {"pipeline_parallel": 4, "micro_batch": 1, "global_batch": 16,
      "sequence_length": 512, "schedule": "auto"}})";
  const Scenario scenario = parse_scenario(text, "t", 1, {}).value();
  const Cluster cluster = read_cluster(scenario.cluster).value();
  const Prediction made = predict(scenario, cluster).value();
  EXPECT_GT(made.choice.considered, 10);
  const std::string report = report_json(made, scenario, cluster);
  EXPECT_NE(report.find("\"order\": {\n    \"schedule\": \"" + made.plan.order + "\""),
            std::string::npos)
      << report;
  EXPECT_NE(report_text(made, scenario, cluster).find("  order: "), std::string::npos);
}

}  // namespace
}  // namespace rehearse::sim
