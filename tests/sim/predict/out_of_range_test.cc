// SPDX-License-Identifier: Apache-2.0
// Numbers about hardware beyond what their keys can mean are refused with the key; any others give
// a prediction whose every number makes sense, or one line: never an integer that has overflowed.
#include <cmath>

#include <gtest/gtest.h>

#include "schedules/base/json_keys.h"
#include "schedules/scenario/scenario.h"
#include "sim/cluster/cluster_keys.h"
#include "sim/predict/predict.h"
#include "sim/report/report.h"

namespace rehearse::sim {
namespace {

// The keys that hold one number, by their paths.
void numbers_of(const KeyTable& table, const std::string& path,
                std::vector<std::pair<std::string, const KeySpec*>>& out) {
  for (const KeySpec& spec : table.keys) {
    const std::string key = join_key(path, spec.name);
    if ((spec.types & (kInteger | kNumber)) != 0) out.emplace_back(key, &spec);
    if (spec.members != nullptr && spec.name != "calibration") {
      numbers_of(*spec.members, key, out);
    } else if (spec.name == "calibration" && path == "gpu") {
      numbers_of(*spec.members, key, out);
    }
  }
}

JsonValue& member(JsonValue& object, const std::string& key) {
  for (JsonMember& one : object.members) {
    if (one.key == key) return one.value;
  }
  object.members.push_back({.key = key, .line = 0, .value = {}});
  return object.members.back().value;
}

void set(JsonValue& document, const std::string& path, double value) {
  JsonValue* at = &document;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    if (at->kind != JsonKind::Object) *at = JsonValue{.kind = JsonKind::Object};
    at = &member(*at, path.substr(begin, end - begin));
    begin = end + 1;
  }
  const bool whole = std::floor(value) == value && std::abs(value) < 1e15;
  *at = JsonValue{.kind = whole ? JsonKind::Integer : JsonKind::Number};
  at->number = value;
  if (whole) at->integer = static_cast<std::int64_t>(value);
}

// An 8-GPU node with NICs and a fabric of its own, so that every number has a place.
JsonValue base_cluster() {
  JsonValue document = read_json("scenarios/clusters/dgx-a100-80gb.json").value();
  JsonValue fabric = read_json("scenarios/clusters/fabrics/superpod-a100-hdr.json").value();
  member(document, "fabric") = std::move(fabric);
  drop_sources(document);
  return document;
}

Result<Cluster> read(const JsonValue& document) {
  ClusterSource source{.path = "base.json"};
  source.inline_json = to_json_text(document);
  return read_cluster(source);
}

TEST(OutOfRange, HardwareNumbersAreRefusedWithTheirKey) {
  std::vector<std::pair<std::string, const KeySpec*>> keys;
  numbers_of(cluster_key_table(), "", keys);
  EXPECT_GT(keys.size(), 70U);
  ASSERT_TRUE(read(base_cluster())) << read(base_cluster()).error().message;
  for (const auto& [key, spec] : keys) {
    EXPECT_TRUE(std::isfinite(spec->min) && std::isfinite(spec->max)) << key;
    for (const double value :
         {spec->max * 1.01 + 1, 1e300, spec->min - 1, -1e300, spec->min > 0 ? 0.0 : -1e-300}) {
      JsonValue document = base_cluster();
      set(document, key, value);
      const Result<Cluster> cluster = read(document);
      ASSERT_FALSE(cluster) << key << " " << value;
      EXPECT_NE(cluster.error().message.find(key), std::string::npos) << cluster.error().message;
    }
  }
}

// A hundred parallel sizes would find no more: pipelines, collectives of all kinds, experts no.
const char* const kScenarios[] = {"scenarios/pipeline-1f1b.json", "scenarios/dp-zero3.json",
                                  "scenarios/dp-ddp.json", "scenarios/tensor-across-nodes.json"};

void expect_sense(const Scenario& scenario, const Cluster& cluster, const std::string& what) {
  const Result<Prediction> made = predict(scenario, cluster);
  if (!made) {
    EXPECT_EQ(made.error().message.find('\n'), std::string::npos) << made.error().message;
    return;
  }
  const Prediction& p = made.value();
  ASSERT_GT(p.step_s, 0) << what;
  ASSERT_LT(p.step_s, 1e9) << what;
  ASSERT_GE(p.bubbles.idle, 0) << what;
  ASSERT_GE(p.bubbles.busy, 0) << what;
  ASSERT_EQ(p.bubbles.idle + p.bubbles.busy, p.timeline.step().value * p.bubbles.ranks) << what;
  std::int64_t causes = 0;
  for (const std::int64_t cause : p.bubbles.causes) {
    ASSERT_GE(cause, 0) << what;
    causes += cause;
  }
  ASSERT_EQ(causes, p.bubbles.idle) << what;
  ASSERT_TRUE(std::isfinite(p.energy_j) && p.energy_j >= 0) << what;
  ASSERT_TRUE(std::isfinite(p.tflops(p.model_flops)) && p.tflops(p.model_flops) >= 0) << what;
  for (const CommunicationRow& row : p.communication) {
    ASSERT_GE(row.traffic.time.value, 0) << what;
    ASSERT_TRUE(std::isfinite(row.bus_bandwidth_gb_per_s)) << what;
  }
  const std::string json = report_json(p, scenario, cluster);
  ASSERT_EQ(json.find("nan"), std::string::npos) << what;
  ASSERT_EQ(json.find(": inf"), std::string::npos) << what;
  ASSERT_EQ(json.find(": -inf"), std::string::npos) << what;
}

TEST(OutOfRange, NothingWithinTheBoundsOverflows) {
  std::vector<std::pair<std::string, const KeySpec*>> all, keys;
  numbers_of(cluster_key_table(), "", all);
  for (const auto& entry : all) {  // what a machine is made of stays: rates and latencies move
    const bool counts = (entry.second->types & kInteger) != 0 || entry.first == "workers";
    if (!counts && !entry.first.starts_with("price")) keys.push_back(entry);
  }
  const bool thorough = std::getenv("REHEARSE_TEST_LONG") != nullptr;
  std::vector<Scenario> scenarios;
  for (const char* path : kScenarios) {
    Result<Scenario> scenario = read_scenario(path, {});
    ASSERT_TRUE(scenario) << scenario.error().message;
    scenarios.push_back(std::move(scenario).value());
  }
  std::size_t next = 0, read_well = 0;
  const auto expect_of = [&](const JsonValue& document, const std::string& what) {
    const Result<Cluster> cluster = read(document);
    if (!cluster) return;  // usable memory beyond the capacity, and the like
    ++read_well;
    expect_sense(scenarios[next++ % scenarios.size()], cluster.value(), what);
  };
  for (const auto& [key, spec] : keys) {
    for (const double value : {spec->min, spec->max}) {
      JsonValue document = base_cluster();
      set(document, key, value);
      expect_of(document, key + " = " + json_number(value));
      if (HasFatalFailure()) return;
    }
  }
  // Several at once, at either end.
  std::uint64_t random = 20261122;
  for (int i = 0; i < (thorough ? 5000 : 120); ++i) {
    JsonValue document = base_cluster();
    std::string what;
    for (const auto& [key, spec] : keys) {
      random = random * 6364136223846793005ULL + 1442695040888963407ULL;
      const std::uint64_t dice = random >> 60;
      if (dice > 5) continue;
      set(document, key, dice < 3 ? spec->min : spec->max);
      what += key + (dice < 3 ? " low, " : " high, ");
    }
    expect_of(document, what);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(read_well, keys.size());
}

// All rates at their lowest and a large model: the time is beyond what can be said.
TEST(OutOfRange, ATimeBeyondAllIntegersIsRefused) {
  JsonValue document = base_cluster();
  for (const char* key : {"gpu.memory_bandwidth_gb_per_s", "gpu.pcie.gb_per_s_per_direction",
                          "scale_up.gb_per_s_per_direction_per_gpu"}) {
    set(document, key, 0.001);
  }
  for (const char* type : {"fp32_vector", "tf32", "fp16", "bf16"}) {
    set(document, std::string("gpu.peak_dense_tflops.") + type, 1e-6);
  }
  const Result<Cluster> cluster = read(document);
  ASSERT_TRUE(cluster) << cluster.error().message;
  const Result<Scenario> scenario = read_scenario("scenarios/gpt3-175b-1024.json", {});
  const Result<Prediction> made = predict(scenario.value(), cluster.value());
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("the step would take years: "), std::string::npos)
      << made.error().message;
  EXPECT_NE(made.error().message.find("more than 13 days"), std::string::npos);
}

}  // namespace
}  // namespace rehearse::sim
