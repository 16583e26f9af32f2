// SPDX-License-Identifier: Apache-2.0
// What data parallelism costs, over random plans and the shipped scenarios: every gradient crosses
// dp once, a gather that overlaps never makes the step longer, and gathers come in the order of
// first use.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <set>

#include "schedules/body/sizes.h"
#include "schedules/ir/listing.h"
#include "schedules/scenario/scenario.h"
#include "sim/predict/predict.h"
#include "sim/report/overlap_note.h"

namespace rehearse::sim {
namespace {

template <class T>
T pick(std::mt19937& random, std::initializer_list<T> choices) {
  return *(choices.begin() + std::uniform_int_distribution<std::ptrdiff_t>(
                                 0, static_cast<std::ptrdiff_t>(choices.size()) - 1)(random));
}

// A plan with replicas, most of the time a legal one; `overlap` follows.
std::string random_plan(std::mt19937& random) {
  const int zero = pick(random, {0, 0, 1, 1, 2, 2, 3});
  const bool server = zero == 0 && pick(random, {0, 0, 1}) == 1;  // of replicas of one GPU
  const auto size = [&](int drawn) { return server ? 1 : drawn; };
  const int p = size(pick(random, {1, 1, 1, 2, 4})), d = pick(random, {2, 4, 8, 16});
  const int micro = pick(random, {1, 2, 4}), m = pick(random, {1, 2, 4, 8, 12});
  const std::string schedule =
      server   ? "none"
      : p == 1 ? pick(random, {"none", "none", "seq_1f1b"})
               : pick(random, {"gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zb_v", "eager_1f1b",
                               "dualpipe", "dualpipev", "chimera", "seq_1f1b"});
  std::string text = "{\"model\": \"models/";
  text += pick(random, {"gpt2-124m", "llama3.2-1b", "qwen2-0.5b", "tiny-gpt", "mistral-7b"});
  text += ".json\", \"cluster\": \"clusters/";
  text += pick(random, {"dgx-a100-80gb", "dgx-h100", "pcie-a100-80gb-8", "rtx4090-8"});
  text += ".json\", \"plan\": {\"pipeline_parallel\": " + std::to_string(p);
  text += ", \"data_parallel\": " + std::to_string(d);
  text += ", \"tensor_parallel\": " + std::to_string(size(pick(random, {1, 1, 2})));
  text += ", \"context_parallel\": " + std::to_string(size(pick(random, {1, 1, 1, 2})));
  text += ", \"schedule\": \"" + schedule + "\"";
  text += ", \"micro_batch\": " + std::to_string(micro);
  text += ", \"global_batch\": " + std::to_string(micro * d * m);
  text += ", \"sequence_length\": " + std::to_string(pick(random, {128, 512, 1024}));
  text += ", \"zero_stage\": " + std::to_string(zero);
  if (server) text += R"(, "data_parallel_algorithm": "parameter_server")";
  text +=
      ", \"bucket_bytes\": " + std::string(pick(random, {"null", "null", "4000000", "100000000"}));
  text += ", \"runtime\": \"";
  return text + pick(random, {"rehearse", zero == 3 ? "fsdp" : "megatron"}) + "\"";
}

std::string with_overlap(const std::string& plan, bool reduce, bool gather) {
  const auto flag = [](bool on) { return std::string(on ? "true" : "false"); };
  return plan + R"(, "overlap": {"gradient_reduce": )" + flag(reduce) +
         R"(, "parameter_gather": )" + flag(gather) + "}}}";
}

Prediction predicted(const Scenario& scenario) {
  const Result<Cluster> cluster = read_cluster(scenario.cluster);
  EXPECT_TRUE(cluster);
  Result<Prediction> made = predict(scenario, cluster.value());
  EXPECT_TRUE(made) << made.error().message;
  return std::move(made).value();
}

bool is_reduction(OpKind kind) {
  return kind == OpKind::AllReduce || kind == OpKind::ReduceScatter || kind == OpKind::Reduce;
}

// Parameters that a rank of the row has, from the model alone: a table that both ends use is one.
std::int64_t parameters_of(const Schedule& s, const Transformer& model, const Plan& plan,
                           RankClass row) {
  const Position here = s.position_of(row);
  std::int64_t sum = 0;
  bool table = false;
  for (Stage stage{0}; stage.value < s.placement.stages(); ++stage.value) {
    const bool down = s.placement.down[stage.index()] == here;
    const bool up = !s.placement.up.empty() && s.placement.up[stage.index()] == here;
    if (!down && !up) continue;
    for (const SegmentInfo& segment : s.segments[stage.index()]) {
      const bool end = segment.kind != SegmentKind::Layer;
      for (const ParameterTensor& tensor :
           segment_parameters({model, plan}, segment.kind, segment.layer)) {
        if (!(tensor.table && model.tied_embedding)) sum += tensor.elements;
      }
      if (!end || !model.tied_embedding || table) continue;
      sum += segment_parameters({model, plan}, SegmentKind::Embedding, -1).front().elements;
      table = true;
    }
  }
  return sum;
}

// Per bucket of a row: how often it is reduced over dp, and by how many micro-batches (and slices)
// its gradient is added to.
struct Reduced {
  std::int64_t times = 0;
  std::set<std::int32_t> units;
};
std::vector<Reduced> reductions(const Schedule& s, RankClass row) {
  std::vector<Reduced> of(s.buckets.size());
  const auto adds = [&](const Op& leaf, const Bucket& bucket) {  // which half of a pair it was
    const auto& kinds = s.segments[leaf.stage.index()];
    return !bucket.tied || kinds.front().kind == SegmentKind::Embedding ||
           kinds.back().kind == SegmentKind::Head;
  };
  for (std::int32_t i = s.row_begin[row.index()]; i < s.row_begin[row.index() + 1]; ++i) {
    const Op& op = s.ops[static_cast<std::size_t>(i)];
    const bool over_dp = s.is_on(op, GroupKind::Data);
    if (over_dp && is_reduction(op.kind)) ++of[op.bucket.index()].times;
    if (!is_compute(op.kind)) continue;
    for (const Operand& operand : s.operands_of({i})) {
      const Value& value = s.values[operand.value.index()];
      if (value.kind != ValueKind::Gradient) continue;
      const Bucket& bucket = s.buckets[value.bucket.index()];
      for (std::int32_t k = 0; k < (op.kind == OpKind::Overlap ? 2 : 1); ++k) {
        const Op& leaf =
            op.kind == OpKind::Overlap ? s.children[static_cast<std::size_t>(op.child + k)] : op;
        const std::int32_t unit =
            leaf.microbatch.value * std::max(s.slices, 1) + std::max<std::int32_t>(leaf.slice, 0);
        if (adds(leaf, bucket)) of[value.bucket.index()].units.insert(unit);
      }
    }
  }
  return of;
}

TEST(DataParallel, ReducesEveryGradientOnceAndWithZeroTwoOncePerMicroBatch) {
  std::mt19937 random(20240901);
  int tied_at_both_ends = 0, per_microbatch = 0, servers = 0;
  for (int trial = 0, done = 0; done < 200; ++trial) {
    ASSERT_LT(trial, 2000) << "too few of the random plans are legal";
    const bool reduce = pick(random, {false, true}), gather = pick(random, {false, true});
    const std::string text = with_overlap(random_plan(random), reduce, gather);
    const Result<Scenario> scenario = parse_scenario(text, "random.json", 1, {});
    if (!scenario) continue;
    ++done;
    const Prediction p = predicted(scenario.value());
    const Schedule& s = p.schedule;
    const Transformer& model = scenario.value().model;
    const bool whole_step = p.plan.runtime.gathers_once_in_pipeline && p.plan.pipeline_parallel > 1;
    const bool server = p.plan.data_parallel_algorithm == DataParallelAlgorithm::ParameterServer;
    const bool each = (p.plan.zero_stage >= 2 && !whole_step) || server;
    per_microbatch += each && s.microbatches > 1 ? 1 : 0;
    servers += server ? 1 : 0;
    tied_at_both_ends += model.tied_embedding && p.plan.pipeline_parallel == 1 ? 1 : 0;
    for (RankClass row{0}; row.value < s.num_rows(); ++row.value) {
      const std::vector<Reduced> reduced = reductions(s, row);
      std::int64_t elements = 0, expected = 0, padding = 0;
      for (std::size_t b = 0; b < s.buckets.size(); ++b) {
        const Bucket& bucket = s.buckets[b];
        if (bucket.position != s.position_of(row)) continue;
        // A pair of a bidirectional order may finish two micro-batches, which are reduced together.
        const bool pairs = each && !s.placement.up.empty();
        const auto units = pairs ? reduced[b].times
                                 : (each ? static_cast<std::int64_t>(reduced[b].units.size()) : 1);
        EXPECT_EQ(reduced[b].times, units) << bucket.name << ' ' << text;
        EXPECT_LE(reduced[b].times, std::ssize(reduced[b].units)) << bucket.name << ' ' << text;
        EXPECT_GE(2 * reduced[b].times, pairs ? std::ssize(reduced[b].units) : 1) << text;
        elements += bucket.elements;
        expected += units * bucket.elements;
        padding += units * (bucket.padded - bucket.elements);
      }
      EXPECT_EQ(elements, parameters_of(s, model, p.plan, row)) << text;
      // What is reported: the payload of each rank, with a parameter server too.
      std::int64_t bytes = 0;
      for (std::int32_t i = s.row_begin[row.index()]; i < s.row_begin[row.index() + 1]; ++i) {
        if (!is_reduction(s.ops[static_cast<std::size_t>(i)].kind)) continue;
        const auto cost =
            static_cast<std::size_t>(p.pricing.table.of_op[static_cast<std::size_t>(i)]);
        for (const Traffic& t : p.pricing.traffic[cost]) {
          if (t.group == GroupKind::Data) bytes += t.bytes;
        }
      }
      EXPECT_EQ(bytes, p.plan.precision.gradients * (expected + padding)) << text;
      const std::int64_t unit = std::int64_t{64} * p.plan.data_parallel * p.plan.context_parallel;
      EXPECT_LT(padding, std::max<std::int64_t>(1, expected / std::max<std::int64_t>(elements, 1)) *
                             unit * std::ssize(s.buckets))
          << text;
    }
  }
  EXPECT_GT(tied_at_both_ends, 40);
  EXPECT_GT(per_microbatch, 20);
  EXPECT_GT(servers, 5);
}

// A table that both ends of the model use on one rank has one gradient: 124,439,808 parameters of 4
// bytes, the padding of the vocabulary from 50,257 to 50,304 rows of 768, and of two buckets.
TEST(DataParallel, ReducesTheTiedTableOfGptTwoOnce) {
  for (const char* algorithm : {"all_reduce", "parameter_server"}) {
    const Result<Scenario> scenario =
        read_scenario("scenarios/dp-ddp.json",
                      {.overrides = {"model=models/gpt2-124m.json",
                                     std::string("plan.data_parallel_algorithm=") + algorithm}});
    ASSERT_TRUE(scenario) << scenario.error().message;
    const Prediction p = predicted(scenario.value());
    std::int64_t bytes = 0;
    for (const CommunicationRow& row : p.communication) {
      const Traffic& t = row.traffic;
      if (t.group == GroupKind::Data && (t.kind == OpKind::AllReduce || t.kind == OpKind::Reduce))
        bytes += t.bytes;
    }
    const std::int64_t gradients = 4 * (std::int64_t{124'439'808} + 47 * 768);
    EXPECT_GE(bytes, gradients) << algorithm;
    EXPECT_LE(bytes, gradients + 4 * 4 * 64 * 8) << algorithm;
  }
}

// Positions of a row's gathers and, for each bucket, the first forward that reads it.
void expect_order_of_use(const Schedule& s, const std::string& text) {
  for (RankClass row{0}; row.value < s.num_rows(); ++row.value) {
    std::vector<std::int32_t> used(s.buckets.size(), -1);
    std::int32_t last = -1;
    for (std::int32_t i = s.row_begin[row.index()]; i < s.row_begin[row.index() + 1]; ++i) {
      if (s.ops[static_cast<std::size_t>(i)].kind != OpKind::Forward) continue;
      for (const Operand& operand : s.operands_of({i})) {
        const Value& value = s.values[operand.value.index()];
        if (value.kind != ValueKind::FullParameter) continue;
        if (used[value.bucket.index()] < 0) used[value.bucket.index()] = i;
      }
    }
    for (std::int32_t i = s.row_begin[row.index()]; i < s.row_begin[row.index() + 1]; ++i) {
      const Op& op = s.ops[static_cast<std::size_t>(i)];
      if (op.kind != OpKind::AllGather || op.stream != Stream::Dp) continue;
      EXPECT_GE(used[op.bucket.index()], last)
          << op_label(s, {i}) << " on row " << row.value << " comes late: " << text;
      last = std::max(last, used[op.bucket.index()]);
    }
  }
}

// What is not overlapped waits for all updates, so nothing is lost by starting with the forward.
TEST(DataParallel, IsNeverSlowerWhereGathersOverlapAndGathersInTheOrderOfUse) {
  std::mt19937 random(20240902);
  const int wanted = std::getenv("REHEARSE_TEST_LONG") != nullptr ? 2000 : 150;
  int faster = 0, done = 0;
  for (int trial = 0; done < wanted; ++trial) {
    ASSERT_LT(trial, 20 * wanted) << "too few of the random plans are legal";
    const std::string plan = random_plan(random);
    const bool reduce = pick(random, {false, true});
    const std::string hidden = with_overlap(plan, reduce, true);
    const Result<Scenario> with = parse_scenario(hidden, "random.json", 1, {});
    if (!with || with.value().plan.zero_stage == 0) continue;
    const Result<Scenario> without =
        parse_scenario(with_overlap(plan, reduce, false), "random.json", 1, {});
    ASSERT_TRUE(without);
    ++done;
    const Prediction a = predicted(with.value()), b = predicted(without.value());
    EXPECT_LE(a.step_s, b.step_s) << hidden;
    faster += a.step_s < b.step_s ? 1 : 0;
    if (with.value().plan.zero_stage <= 2) {
      expect_order_of_use(a.schedule, hidden);
      expect_order_of_use(b.schedule, hidden);
    }
  }
  EXPECT_GT(2 * faster, done);
}

// Of a scenario with and without overlap.gradient_reduce: the note is there exactly where overlap
// costs, and says how much. Returns what it costs [s].
double expect_note_where_slower(const Scenario& hidden, const Scenario& plain,
                                const std::string& what) {
  const Prediction a = predicted(hidden), b = predicted(plain);
  const Result<Cluster> cluster = read_cluster(hidden.cluster);
  const std::string note = overlap_note(hidden, cluster.value(), a);
  const std::string said =
      a.step_s <= b.step_s ? std::string{}
                           : fmt::format(
                                 "overlap of the gradient reduction costs {:.3f} ms here: with "
                                 "overlap.gradient_reduce false the step takes {:.6f} s. Reasons: ",
                                 (a.step_s - b.step_s) * 1e3, b.step_s);
  EXPECT_EQ(note.substr(0, said.size()), said) << what;
  EXPECT_EQ(note.empty(), said.empty()) << what << "\n" << note;
  EXPECT_EQ(overlap_note(plain, cluster.value(), b), "") << what;
  return a.step_s - b.step_s;
}

// Reductions beside the backward slow it; in a pipeline, where all stages wait for one another, by
// more than they hide. No plan is silently slower.
TEST(DataParallel, SaysSoWhereReductionsOverlapAndTheStepIsSlower) {
  std::mt19937 random(20240903);
  const int wanted = std::getenv("REHEARSE_TEST_LONG") != nullptr ? 1000 : 100;
  int slower = 0, faster = 0;
  for (int trial = 0, done = 0; done < wanted; ++trial) {
    ASSERT_LT(trial, 20 * wanted) << "too few of the random plans are legal";
    const std::string plan = random_plan(random);
    const bool gather = pick(random, {false, true});
    const Result<Scenario> hidden =
        parse_scenario(with_overlap(plan, true, gather), "random.json", 1, {});
    if (!hidden) continue;
    const Result<Scenario> plain =
        parse_scenario(with_overlap(plan, false, gather), "random.json", 1, {});
    ASSERT_TRUE(plain);
    ++done;
    const double costs = expect_note_where_slower(hidden.value(), plain.value(), plan);
    slower += costs > 0 ? 1 : 0;
    faster += costs < 0 ? 1 : 0;
  }
  EXPECT_GT(slower, 0);
  EXPECT_GT(faster, slower);
}

TEST(DataParallel, SaysSoWhereAShippedScenarioIsSlowerWithOverlappedReductions) {
  int seen = 0;
  double gpt3 = 0;
  for (const auto& file : std::filesystem::directory_iterator("scenarios")) {
    if (file.path().extension() != ".json") continue;
    const std::string path = file.path().string();
    const Result<Scenario> hidden =
        read_scenario(path, {.overrides = {"plan.overlap.gradient_reduce=true"}});
    const Result<Scenario> plain =
        read_scenario(path, {.overrides = {"plan.overlap.gradient_reduce=false"}});
    if (!hidden || !plain) continue;  // a search space
    const Plan& plan = hidden.value().plan;
    if (plan.data_parallel * plan.context_parallel == 1 || plan.micro_batch_auto) continue;
    ++seen;
    const double costs = expect_note_where_slower(hidden.value(), plain.value(), path);
    if (file.path().stem() == "gpt3-175b-1024") gpt3 = costs;
  }
  EXPECT_GE(seen, 8);
  EXPECT_LT(gpt3, 0);  // all its positions reduce at once, so that their losses do not add up
}

// Every shipped scenario with replicas, also as ZeRO-1 to 3. Reductions beside the backward too
// where there is one position; of a pipeline see above.
TEST(DataParallel, IsNeverSlowerWhereAShippedScenarioOverlaps) {
  int seen = 0;
  for (const auto& file : std::filesystem::directory_iterator("scenarios")) {
    if (file.path().extension() != ".json") continue;
    const std::string path = file.path().string();
    const Result<Scenario> shipped = read_scenario(path, {});
    if (!shipped) continue;  // a search space
    const Plan& plan = shipped.value().plan;
    const bool server = plan.data_parallel_algorithm == DataParallelAlgorithm::ParameterServer;
    if (plan.data_parallel * plan.context_parallel == 1) continue;
    for (int zero = 0; zero <= (server ? 0 : 3); ++zero) {
      if (plan.zero_stage > 0 && zero != plan.zero_stage) continue;
      const auto step = [&](bool reduce, bool gather) {
        const auto flag = [](bool on) { return std::string(on ? "true" : "false"); };
        const Result<Scenario> scenario = read_scenario(
            path, {.overrides = {"plan.zero_stage=" + std::to_string(zero),
                                 R"(plan.overlap={"gradient_reduce": )" + flag(reduce) +
                                     R"(, "parameter_gather": )" + flag(gather) + "}"}});
        EXPECT_TRUE(scenario) << scenario.error().message;
        const Result<Cluster> cluster = read_cluster(scenario.value().cluster);
        EXPECT_TRUE(cluster);
        const Result<Prediction> made =
            predict(scenario.value(), cluster.value(), {.memory = false});
        EXPECT_TRUE(made) << path;
        return made ? made.value().step_s : 0.0;
      };
      ++seen;
      const std::string what = path + " with ZeRO-" + std::to_string(zero);
      const double both = step(true, true);
      EXPECT_LE(both, step(true, false)) << what;
      if (plan.pipeline_parallel > 1) continue;
      EXPECT_LE(both, step(false, true)) << what;
      EXPECT_LE(step(false, true), step(false, false)) << what;
    }
  }
  EXPECT_GE(seen, 12);
}

// --- Through one GPU -------------------------------------------------------------------------------

Prediction through_one_gpu(const std::string& runtime, int micro_batches) {
  const Result<Scenario> scenario = read_scenario(
      "scenarios/dp-parameter-server.json",
      {.overrides = {"model=models/gpt2-124m.json", "gpus=4", "plan.data_parallel=4",
                     "plan.precision=fp32", "plan.pad_vocabulary_to=1", "plan.dropout=0",
                     "plan.global_batch=" + std::to_string(32 * micro_batches),
                     "plan.runtime=" + runtime}});
  EXPECT_TRUE(scenario) << scenario.error().message;
  return predicted(scenario.value());
}

// GPT-2 124M, 32 samples of 1024 tokens on 4 GPUs in fp32: 2 x 4.94 GB of logits through GPU 0's
// link, which has a quarter of them, and 0.498 GB of parameters out and of gradients in.
TEST(ThroughOneGpu, HasTheExchangesOfTorchForEveryMicroBatch) {
  const std::int64_t parameters = 4 * std::int64_t{124'439'808};
  const std::int64_t logits = std::int64_t{32} * 1024 * 50257 * 4, tokens = 32 * 1024 * 4;
  for (const int m : {1, 3}) {
    const Prediction p = through_one_gpu("rehearse", m);
    const Schedule& s = p.schedule;
    ASSERT_EQ(s.num_rows(), 2);
    const auto buckets = static_cast<std::int64_t>(s.buckets.size());
    std::int64_t seen = 0;
    for (const CommunicationRow& row : p.communication) {
      const Traffic& t = row.traffic;
      if (t.group != GroupKind::Data) continue;
      ++seen;
      const bool about_buckets = t.kind == OpKind::Broadcast || t.kind == OpKind::Reduce;
      if (about_buckets) {
        EXPECT_EQ(t.count, m * buckets);
        EXPECT_GE(t.bytes, m * parameters);
        EXPECT_LE(t.bytes, m * (parameters + 4 * 64 * 4 * buckets));  // padding
      } else {
        EXPECT_EQ(t.count, t.kind == OpKind::Scatter ? 2 * m : m);
        EXPECT_EQ(t.bytes, m * (logits + (t.kind == OpKind::Scatter ? tokens : 0)));
      }
      EXPECT_NEAR(row.exposed_s, 1e-9 * static_cast<double>(t.time.value), row.exposed_s)
          << "nothing is hidden";
    }
    EXPECT_EQ(seen, 4);  // SCATTER, BROADCAST, GATHER, REDUCE
    const auto losses = [&](RankClass row) {
      return std::ranges::count_if(s.program(row),
                                   [](const Op& op) { return op.kind == OpKind::Loss; });
    };
    EXPECT_EQ(losses({0}), m);
    EXPECT_EQ(losses({1}), 0);
  }
}

// Between steps the others hold no parameters, gradients or states; for a micro-batch a copy of the
// parameters, gradients of its own, and logits of its samples. GPU 0 has those of all.
TEST(ThroughOneGpu, FillsGpuZeroAndNotTheOthers) {
  const std::int64_t parameters = 4 * std::int64_t{124'439'808};
  const std::int64_t logits = std::int64_t{8} * 1024 * 50257 * 4;
  const Prediction own = through_one_gpu("rehearse", 2);
  std::array<std::int64_t, 2> kept{}, outputs{};
  for (const Value& value : own.schedule.values) {
    if (value.home == Home::Host) continue;
    if (value.persistent) kept[value.row.index()] += value.bytes.value;
    if (value.kind == ValueKind::ActivationGradient && value.stage.value == 1 &&
        value.microbatch.value == 0) {
      outputs[value.row.index()] = value.bytes.value;
    }
  }
  EXPECT_GE(kept[0], 3 * parameters);  // and two moments
  EXPECT_LE(kept[0], 3 * parameters + 12 * 64 * 4 * 16);
  EXPECT_EQ(kept[1], 0);
  EXPECT_EQ(outputs[0], 4 * logits);
  EXPECT_EQ(outputs[1], logits);

  const Prediction torch = through_one_gpu("generic", 2);
  ASSERT_EQ(torch.memory.ranks.size(), 2U);
  const RankMemory &root = torch.memory.ranks[0], &other = torch.memory.ranks[1];
  EXPECT_EQ(root.parts.parameters, other.parts.parameters);
  EXPECT_GE(root.parts.optimizer, 2 * parameters);
  EXPECT_EQ(other.parts.optimizer, 0);
  EXPECT_GT(root.steady_allocated, 3 * parameters);
  EXPECT_LT(other.steady_allocated, parameters / 4);
  EXPECT_GT(root.peak_allocated - other.peak_allocated, 2 * parameters + 2 * logits);
}

// docs: the gather of GPT-2's table comes first, so all that a forward can hide is hidden: what is
// left are the first buckets. It was all of it.
TEST(DataParallel, HidesMostOfTheGatherOfAModelWithATiedTable) {
  for (const char* batch : {"64", "256"}) {  // one micro-batch, and four
    const Result<Scenario> scenario = read_scenario(
        "scenarios/dp-zero1.json", {.overrides = {std::string("plan.global_batch=") + batch}});
    ASSERT_TRUE(scenario);
    const Prediction p = predicted(scenario.value());
    for (const CommunicationRow& row : p.communication) {
      if (row.traffic.kind != OpKind::AllGather || row.traffic.group != GroupKind::Data) continue;
      EXPECT_LT(row.exposed_s, 0.15e-9 * static_cast<double>(row.traffic.time.value)) << batch;
    }
  }
}

}  // namespace
}  // namespace rehearse::sim
