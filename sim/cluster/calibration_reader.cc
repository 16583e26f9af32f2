// SPDX-License-Identifier: Apache-2.0
#include "sim/cluster/calibration_reader.h"

#include <algorithm>
#include <array>

#include "schedules/base/files.h"
#include "schedules/scenario/plan_names.h"
#include "sim/cluster/cluster_keys.h"

namespace rehearse::sim {
namespace {

std::int64_t integer(const JsonValue& from, std::string_view key, std::int64_t otherwise) {
  const JsonValue* value = from.given(key);
  return value == nullptr ? otherwise : value->integer;
}
double number(const JsonValue& from, std::string_view key) {
  const JsonValue* value = from.given(key);
  return value == nullptr ? 0 : value->number;
}
bool flag(const JsonValue& from, std::string_view key, bool otherwise) {
  const JsonValue* value = from.given(key);
  return value == nullptr ? otherwise : value->boolean;
}
std::string text(const JsonValue& from, std::string_view key) {
  const JsonValue* value = from.given(key);
  return value == nullptr ? "" : value->text;
}
// Position of the word; the tables of keys allow no other.
template <class Enum, std::size_t N>
Enum word(const JsonValue& from, std::string_view key, const std::array<std::string_view, N>& words,
          Enum otherwise) {
  const JsonValue* value = from.given(key);
  if (value == nullptr) return otherwise;
  return static_cast<Enum>(std::ranges::find(words, value->text) - words.begin());
}

constexpr std::array<std::string_view, 3> kProcessLinkNames{"", "memory", "tcp"};

GemmPoint gemm_point(const JsonValue& from) {
  return {.m = integer(from, "m", 1),
          .n = integer(from, "n", 1),
          .k = integer(from, "k", 1),
          .batch = integer(from, "batch", 1),
          .type = word(from, "type", kComputeTypeNames, ComputeType::Bf16),
          .accumulate = flag(from, "accumulate", false),
          .layout = text(from, "layout"),
          .time_us = number(from, "time_us"),
          .fraction_of_peak = number(from, "fraction_of_peak")};
}

// What values of another width than keys would have taken as wide as these, by their FLOPs:
// products as wide as keys and as values, forward one of each, backward three and two.
double as_wide_as_keys(bool backward, std::int64_t head_dim, std::int64_t value_dim) {
  const std::int64_t keys = backward ? 3 : 1, values = backward ? 2 : 1;
  return static_cast<double>((keys + values) * head_dim) /
         static_cast<double>(keys * head_dim + values * value_dim);
}

AttentionPoint attention_point(const JsonValue& from) {
  const std::int64_t heads = integer(from, "heads", 1), head_dim = integer(from, "head_dim", 1);
  const bool causal = flag(from, "causal", true), backward = text(from, "direction") == "backward";
  return {.kernel = word(from, "kernel", kAttentionKernelNames, AttentionKernel::Flash2),
          .backward = backward,
          .causal = causal,
          .part = flag(from, "part", !causal),
          .half = flag(from, "half", false),
          .batch = integer(from, "batch", 1),
          .heads = heads,
          .kv_heads = integer(from, "kv_heads", heads),
          .sequence = integer(from, "sequence", 1),
          .head_dim = head_dim,
          .time_us = number(from, "time_us") *
                     as_wide_as_keys(backward, head_dim, integer(from, "value_dim", head_dim))};
}

CollectivePoint collective_point(const JsonValue& from) {
  return {
      .op = word(from, "op", kCollectiveNames, CollectiveOp::AllReduce),
      .ranks = static_cast<std::int32_t>(integer(from, "ranks", 2)),
      .nodes = static_cast<std::int32_t>(integer(from, "nodes", 1)),
      .bytes = integer(from, "bytes", 1),
      .time_us = number(from, "time_us"),
      .between_processes = word(from, "between_processes", kProcessLinkNames, ProcessLink::None),
      .apart = flag(from, "apart", false)};
}

template <class Point, class Make>
void read_points(const JsonValue& object, std::string_view key, std::vector<Point>& to, Make make) {
  const JsonValue* list = object.given(key);
  if (list == nullptr) return;
  to.reserve(list->items.size());
  for (const JsonValue& item : list->items) to.push_back(make(item));
}

void check_gemm_points(const JsonValue& object, const std::string& key, JsonReport& report) {
  const JsonValue* list = object.given("gemm");
  if (list == nullptr) return;
  for (std::size_t i = 0; i < list->items.size(); ++i) {
    const JsonValue& point = list->items[i];
    const bool time = point.given("time_us") != nullptr;
    if (time != (point.given("fraction_of_peak") != nullptr)) continue;
    report.fail(point.line, join_key(key, "gemm[" + std::to_string(i) + "]"),
                "needs one of time_us and fraction_of_peak");
  }
}

// What a scalar can mean, by the end of its name; kernel_scalars.cc is stricter with those it
// reads.
struct ScalarRange {
  std::string_view ending;
  double low = 0, high = 0;
};
constexpr std::array<ScalarRange, 3> kScalarRanges{{
    {"_us", 0, 1e6},      // host times, meetings, handing over
    {"_bytes", 0, 1e15},  // contexts, communicators
    {"", -1e12, 1e12},    // factors, fractions, clocks [MHz], shares
}};

void read_scalars(const JsonValue& object, const std::string& key, Calibration& to,
                  JsonReport& report) {
  const JsonValue* scalars = object.given("scalars");
  if (scalars == nullptr) return;
  for (const JsonMember& member : scalars->members) {
    const std::string at = join_key(key, "scalars." + member.key);
    if (!member.value.is_number()) report.fail(member.line, at, "must be a number");
    const auto& [ending, low, high] = *std::ranges::find_if(
        kScalarRanges, [&](const ScalarRange& one) { return member.key.ends_with(one.ending); });
    if (member.value.number < low || member.value.number > high) {
      report.fail(member.line, at,
                  json_number(member.value.number) + " is out of range: " + json_number(low) +
                      " to " + json_number(high));
    }
    to.scalars.emplace_back(member.key, member.value.number);
  }
}

}  // namespace

Calibration calibration_of(const JsonValue& object, const std::string& key, JsonReport& report) {
  check_gemm_points(object, key, report);
  Calibration to{.path = report.path(), .id = text(object, "id")};
  read_points(object, "gemm", to.gemm, gemm_point);
  read_points(object, "memory_bound", to.memory_bound, [](const JsonValue& from) {
    return MemoryBoundPoint{.op = text(from, "op"),
                            .bytes = integer(from, "bytes", 1),
                            .backward = text(from, "direction") == "backward",
                            .time_us = number(from, "time_us")};
  });
  read_points(object, "attention", to.attention, attention_point);
  read_points(object, "collectives", to.collectives, collective_point);
  read_points(object, "copies", to.copies, [](const JsonValue& from) {
    return CopyPoint{.direction = word(from, "direction", kCopyNames, CopyDirection::HostToDevice),
                     .bytes = integer(from, "bytes", 1),
                     .time_us = number(from, "time_us"),
                     .drives = flag(from, "drives", false)};
  });
  if (const JsonValue* launch = object.given("launch_us")) to.launch_us = launch->number;
  read_scalars(object, key, to, report);
  return to;
}

Result<Calibration> read_calibration(const std::string& path) {
  Result<JsonValue> root = read_json(path);
  if (!root) return root.error();
  JsonValue document = std::move(root).value();
  drop_sources(document);
  JsonReport report(path);
  check_keys(document, calibration_key_table(), "", report);
  if (!report.ok()) return report.error();
  Calibration calibration = calibration_of(document, "", report);
  if (!report.ok()) return report.error();
  if (calibration.id.empty()) calibration.id = stem_of(path);
  return calibration;
}

}  // namespace rehearse::sim
