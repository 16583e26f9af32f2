// SPDX-License-Identifier: Apache-2.0
// What a prediction, a report and a trace say of themselves beside their times.
#include <algorithm>

#include "sim/explain/breakdown_of.h"
#include "sim/explain/explanation.h"
#include "sim/report/report.h"

namespace rehearse::sim {
namespace {

constexpr std::array<std::string_view, 3> kPeaks{"peak_device_bytes", "peak_reserved_bytes",
                                                 "peak_allocated_bytes"};

// Members of objects one by one: "overlap.pipeline". A list is one value.
void add_keys(const JsonValue& value, const std::string& name,
              std::vector<std::pair<std::string, Json>>& keys) {
  if (!value.is(JsonKind::Object)) {
    keys.emplace_back(name, Json(value));
    return;
  }
  for (const JsonMember& member : value.members)
    add_keys(member.value, name + "." + member.key, keys);
}

// Peaks of the fullest rank, and what they are made of there.
void add_memory(const JsonValue& memory, std::vector<std::pair<std::string, std::int64_t>>& to) {
  for (const std::string_view peak : kPeaks) {
    const JsonValue* bytes = memory.given(peak);
    if (bytes != nullptr && bytes->is(JsonKind::Integer)) to.emplace_back(peak, bytes->integer);
  }
  const JsonValue *ranks = memory.given("ranks"), *fullest = nullptr;
  std::int64_t most = -1;
  if (ranks == nullptr) return;
  for (const JsonValue& rank : ranks->items) {
    const JsonValue* peak = rank.given("peak_device_bytes");
    if (peak == nullptr || peak->integer <= most) continue;
    most = peak->integer;
    fullest = &rank;
  }
  const JsonValue* parts = fullest == nullptr ? nullptr : fullest->given("parts");
  if (parts == nullptr) return;
  for (const JsonMember& part : parts->members) {
    if (part.value.is(JsonKind::Integer)) to.emplace_back(part.key, part.value.integer);
  }
}

class Reading {
 public:
  Reading(const JsonValue& report, const std::string& path) : report_(report), faults_(path) {}

  Result<Explained> read() {
    const std::string schema = text("schema");
    const bool measured = schema == "rehearse.measurement/1";
    if (faults_.ok() && !measured && schema != "rehearse.prediction/1") {
      faults_.fail(report_.line, "schema",
                   schema +
                       " is no report of a step: rehearse.prediction/1 (simulate --json) and "
                       "rehearse.measurement/1 (run --json) are");
    }
    ReportedTimes times{.step_s = number("step_time_s"),
                        .ranks = static_cast<std::int64_t>(number("gpus")),
                        .idle_ns = static_cast<std::int64_t>(number("idle_ns")),
                        .inside = !measured};
    if (faults_.ok() && (times.step_s <= 0 || times.step_s > 1e6))
      fail("step_time_s", "is no step");
    if (faults_.ok() && times.ranks < 1) fail("gpus", "must be at least 1");
    if (faults_.ok() && times.idle_ns < 0) fail("idle_ns", "must not be negative");
    const JsonValue* causes = object("bubble_causes_ns");
    for (std::size_t c = 0; c < kNumIdleCauses && causes != nullptr; ++c) {
      const JsonValue* value = causes->given(kIdleCauseNames[c]);
      if (value == nullptr) continue;
      times.causes[c] = value->integer;
      if (value->integer < 0) fail("bubble_causes_ns", "must not be negative");
    }
    const JsonValue *memory = object("memory"), *plan = object("plan");
    if (!faults_.ok()) return faults_.error();
    Explained out{.what = "report",
                  .measured = measured,
                  .title = text("name"),
                  .ranks = times.ranks,
                  .breakdown = breakdown_of(times)};
    for (const std::string_view key : {"cluster", "gpus", "parameters", "microbatches"}) {
      if (const JsonValue* value = report_.given(key)) {
        out.keys.emplace_back(std::string(key), Json(*value));
      }
    }
    add_keys(*plan, "plan", out.keys);
    const JsonValue *batch = plan->given("global_batch"), *length = plan->given("sequence_length");
    constexpr std::int64_t kMost = std::int64_t{1} << 31;
    if (batch != nullptr && length != nullptr && batch->integer > 0 && length->integer > 0 &&
        batch->integer < kMost && length->integer < kMost) {
      out.tokens = batch->integer * length->integer;
    }
    add_memory(*memory, out.memory);
    if (const JsonValue* confidence = report_.given("confidence")) {
      out.confidence = Json(*confidence);
    }
    if (const JsonValue* notes = report_.given("notes")) {
      for (const JsonValue& note : notes->items) out.notes.push_back(note.text);
    }
    return out;
  }

 private:
  void fail(std::string_view key, const std::string& what) {
    faults_.fail(report_.line, std::string(key), what);
  }
  const JsonValue* value(std::string_view key, JsonKind kind) {
    const JsonValue* found = report_.given(key);
    const bool number = kind == JsonKind::Number;
    if (found == nullptr) {
      fail(key, "is missing: a whole report of simulate --json or run --json is asked for");
    } else if (number ? !found->is_number() : !found->is(kind)) {
      fail(key, number                     ? "must be a number"
                : kind == JsonKind::String ? "must be a text"
                                           : "must be an object");
    } else {
      return found;
    }
    return nullptr;
  }
  std::string text(std::string_view key) {
    const JsonValue* found = value(key, JsonKind::String);
    return found == nullptr ? "" : found->text;
  }
  double number(std::string_view key) {
    const JsonValue* found = value(key, JsonKind::Number);
    return found == nullptr ? 0 : found->number;
  }
  const JsonValue* object(std::string_view key) { return value(key, JsonKind::Object); }

  const JsonValue& report_;
  JsonReport faults_;
};

}  // namespace

Result<Explained> explained(const JsonValue& report, const std::string& path) {
  return Reading(report, path).read();
}

// Its report says all but how finely its time is known.
Explained explained(const Prediction& p, const Scenario& scenario, const Cluster& cluster) {
  const Result<JsonValue> report = parse_json(report_json(p, scenario, cluster), scenario.name);
  Explained out = explained(report.value(), scenario.name).value();
  out.what = "scenario";
  out.breakdown = breakdown_of(p, scenario.model);
  return out;
}

Explained explained(const Trace& trace) {
  Explained out{.what = "trace",
                .measured = trace.label == TraceLabel::Measured,
                .title = trace.title,
                .ranks = 0,
                .breakdown = breakdown_of(trace)};
  for (const TraceRow& row : trace.rows) out.ranks += row.multiplicity;
  out.keys.emplace_back("gpus", out.ranks);
  if (trace.microbatches > 0) out.keys.emplace_back("microbatches", trace.microbatches);
  if (trace.memory_time.empty()) return out;
  // The sample with the most bytes, of all rows.
  const std::size_t parts = trace.memory_parts.size();
  std::size_t fullest = 0;
  std::int64_t most = -1;
  for (std::size_t sample = 0; sample < trace.memory_time.size(); ++sample) {
    std::int64_t sum = 0;
    for (std::size_t part = 0; part < parts; ++part)
      sum += trace.memory_bytes[sample * parts + part];
    if (sum > most) fullest = sample;
    most = std::max(most, sum);
  }
  out.memory.emplace_back("peak_allocated_bytes", most);
  for (std::size_t part = 0; part < parts; ++part) {
    out.memory.emplace_back(trace.memory_parts[part], trace.memory_bytes[fullest * parts + part]);
  }
  return out;
}

}  // namespace rehearse::sim
