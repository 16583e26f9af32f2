// SPDX-License-Identifier: Apache-2.0
// rehearse compare: two timelines of one schedule, predicted and measured, or two runs.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "cli/commands.h"
#include "cli/run/straggler_report.h"
#include "schedules/base/json_document.h"
#include "schedules/ir/bucket_words.h"
#include "schedules/ir/text.h"
#include "schedules/trace/collectives_inside.h"
#include "viz/analysis/two/align.h"
#include "viz/analysis/analysis.h"
#include "viz/analysis/curves.h"
#include "viz/analysis/units_text.h"
#include "viz/import/import.h"

namespace rehearse::cli {
namespace {

struct CompareOptions {
  std::string a, b;
  std::size_t worst = 20;
  bool json = false;
};

std::string kind_name(const viz::KindDifference& kind) {
  return kind_text(kind.kind, kind.payload);
}

// b / a - 1; null where a took no time.
Json error_of(std::int64_t a, std::int64_t b) {
  return a > 0 ? Json(static_cast<double>(b) / static_cast<double>(a) - 1) : Json(nullptr);
}

// Mean |error| of an op, each weighted by its time in a; null where nothing takes time.
Json weighted_error(const viz::TraceDifference& found) {
  double differs = 0, takes = 0;
  for (const viz::OpDifference& op : found.ops)
    differs += std::fabs(static_cast<double>(op.b - op.a));
  for (const viz::KindDifference& kind : found.kinds) takes += static_cast<double>(kind.a);
  return takes > 0 ? Json(differs / takes) : Json(nullptr);
}

double seconds(std::int64_t ns) {
  return static_cast<double>(ns) / 1e9;
}

struct Side {
  Trace trace;
  Json stragglers;
  viz::Summary summary;  // of the whole step, all rows

  bool measured() const { return trace.label == TraceLabel::Measured; }
};

Side side_of(Trace trace, Json stragglers) {
  if (trace.idle.empty()) viz::attribute_idle(trace);
  const viz::TraceIndex index(trace);
  const viz::Summary summary =
      viz::summarize(index, trace.begin.value, trace.end.value, 0, trace.num_rows());
  return {std::move(trace), std::move(stragglers), summary};
}

// Equal ranks that need the same are one entry.
Json memory_json(const Trace& a, const Trace& b) {
  Json rows = Json::array();
  if (a.memory_time.empty() || b.memory_time.empty()) return rows;
  std::map<std::array<std::int64_t, 3>, std::int32_t> entries;  // by class and both peaks
  std::vector<std::int32_t> ranks;
  for (std::int32_t row = 0; row < a.num_rows(); ++row) {
    const std::int64_t x = viz::MemoryCurve(a, {row}).peak().bytes,
                       y = viz::MemoryCurve(b, {row}).peak().bytes;
    const std::int32_t row_class =
        a.row_class.empty() ? row : a.row_class[static_cast<std::size_t>(row)];
    const auto [entry, fresh] =
        entries.try_emplace({row_class, x, y}, static_cast<std::int32_t>(ranks.size()));
    if (!fresh) {
      ++ranks[static_cast<std::size_t>(entry->second)];
      continue;
    }
    ranks.push_back(1);
    rows.push_back({{"row", row_name(a, {row})},
                    {"peak_bytes_a", x},
                    {"peak_bytes_b", y},
                    {"error", error_of(x, y)}});
  }
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] > 1)
      rows.items()[i]["row"] =
          rows.items()[i]["row"].text() + " (x" + std::to_string(ranks[i]) + ")";
  }
  return rows;
}

// 0 is not known.
Json known(std::int64_t bytes) {
  return bytes > 0 ? Json(bytes) : Json(nullptr);
}

// Resident memory of all processes: what was measured; where it was not, what was planned.
Json resident_json(const Trace& a, const Trace& b) {
  const auto of = [](const Trace& t) {
    return t.measured_resident() > 0 ? t.measured_resident() : t.planned_resident();
  };
  return {{"bytes_a", known(of(a))},
          {"bytes_b", known(of(b))},
          {"error", of(b) > 0 ? error_of(of(a), of(b)) : Json(nullptr)}};
}

// The collectives of a rank of the first row, those inside ops too: they need not agree where the
// traces are of other plans or versions.
Json collectives_json(const Trace& a, const Trace& b) {
  Json list = Json::array();
  const std::vector<CollectiveSum> of_a = collectives_of(a, {0}), of_b = collectives_of(b, {0});
  const auto in = [](const std::vector<CollectiveSum>& all, const CollectiveSum& like) {
    const auto same = std::ranges::find_if(all, [&](const CollectiveSum& one) {
      return one.group == like.group && one.kind == like.kind;
    });
    return same == all.end() ? CollectiveSum{.group = like.group, .kind = like.kind} : *same;
  };
  const auto add = [&](const CollectiveSum& x, const CollectiveSum& y) {
    list.push_back({{"group", x.group},
                    {"op", x.kind == OpKind::Send ? "SEND_RECV" : traits(x.kind).name},
                    {"count_a", x.count},
                    {"count_b", y.count},
                    {"bytes_a", x.bytes},
                    {"bytes_b", y.bytes},
                    {"inside_bytes_a", x.inside_bytes},
                    {"inside_bytes_b", y.inside_bytes}});
  };
  for (const CollectiveSum& one : of_a) add(one, in(of_b, one));
  for (const CollectiveSum& one : of_b) {
    if (in(of_a, one).count == 0) add(in(of_a, one), one);
  }
  return list;
}

Json comparison(const Side& a, const Side& b, const viz::TraceDifference& found,
                std::size_t worst) {
  const auto side = [](const Side& of) {
    const viz::Summary& sum = of.summary;
    return Json{{"label", of.measured() ? "measured" : "predicted"},
                {"title", of.trace.title},
                {"caption", of.trace.caption},
                {"step_time_s", seconds(of.trace.step().value)},
                {"bubble_ratio", sum.bubble_ratio()},
                {"between_ops_ratio", sum.share(sum.between_ops())},
                {"inside_ops_ratio",
                 sum.inside_unknown ? Json(nullptr) : Json(sum.share(sum.inside_ops()))},
                {"memory", of.measured() ? "planned" : "predicted"},
                {"stragglers", of.stragglers},
                {"planned_resident_bytes", known(of.trace.planned_resident())},
                {"peak_measured_bytes", known(of.trace.measured_resident())}};
  };
  Json out{{"schema", "rehearse.comparison/1"},
           {"schedule_hash", a.trace.schedule_hash},
           {"a", side(a)},
           {"b", side(b)},
           {"step_time_error", error_of(found.step_a, found.step_b)},
           {"weighted_abs_error", weighted_error(found)},
           {"differing_ops", found.ops.size()}};
  out["kinds"] = Json::array();
  for (const viz::KindDifference& kind : found.kinds) {
    out["kinds"].push_back({{"kind", kind_name(kind)},
                            {"count", kind.count},
                            {"bytes", known(kind.bytes)},
                            {"time_s_a", seconds(kind.a)},
                            {"time_s_b", seconds(kind.b)},
                            {"error", error_of(kind.a, kind.b)},
                            {"mean_abs_error", kind.mean_abs_error}});
  }
  out["ops"] = Json::array();
  std::set<std::string> buckets;
  for (std::size_t i = 0; i < std::min(worst, found.ops.size()); ++i) {
    const viz::OpDifference& op = found.ops[i];
    if (const TraceString bucket = a.trace.class_of(op.op).bucket; bucket >= 0) {
      buckets.emplace(a.trace.text(bucket));
    }
    out["ops"].push_back({{"op", op.op.value},
                          {"name", op_name(a.trace, op.op)},
                          {"row", row_name(a.trace, a.trace.row_of(op.op))},
                          {"bytes", known(a.trace.class_of(op.op).bytes)},
                          {"time_s_a", seconds(op.a)},
                          {"time_s_b", seconds(op.b)},
                          {"error", error_of(op.a, op.b)},
                          {"start_s_a", seconds(op.start_a)},
                          {"start_s_b", seconds(op.start_b)}});
  }
  out["collectives"] = collectives_json(a.trace, b.trace);
  out["buckets"] = bucket_legend(buckets);
  out["memory"] = memory_json(a.trace, b.trace);
  out["resident_memory"] = resident_json(a.trace, b.trace);
  return out;
}

// "+5.3 %"; beyond tenfold, where per cent say nothing, the factor.
std::string percent(const Json& error) {
  if (error.is_null()) return "-";
  const double value = error.number();
  if (value >= 9) return fmt::format("x {:.3g}", value + 1);
  return (value >= 0 ? "+" : "") + viz::percent_text(value);
}

std::string padded(const std::string& text, std::size_t width, bool right = true) {
  const std::size_t missing = width > text.size() ? width - text.size() : 0;
  return right ? std::string(missing, ' ') + text : text + std::string(missing, ' ');
}

std::string time_cell(const Json& s) {
  std::string text = viz::time_text(std::llround(s.number() * 1e9));
  if (const std::size_t micro = text.find("µ"); micro != std::string::npos)
    text.replace(micro, 2, "u");  // one column
  return padded(text, 10);
}

std::string text_of(const Json& report) {
  const Json &a = report["a"], &b = report["b"];
  std::string out = a["title"].text() + "\n";
  for (const Json* side : {&a, &b}) {
    const auto caption = (*side)["caption"].text();
    if (!caption.empty()) out += caption + "\n";
  }
  out += padded("", 28, false) + padded(a["label"].text(), 10) + padded(b["label"].text(), 10) +
         padded("error", 12) + "\n";
  out += padded("step", 28, false) + time_cell(a["step_time_s"]) + time_cell(b["step_time_s"]) +
         padded(percent(report["step_time_error"]), 12) + "\n";
  const auto share = [](const Json& ratio) {
    return padded(ratio.is_null() ? "-" : viz::percent_text(ratio.number()), 10);
  };
  out += padded("bubbles between ops", 28, false) + share(a["between_ops_ratio"]) +
         share(b["between_ops_ratio"]) + "\n";
  const auto may_wait = [](const Json& ratio) { return ratio.is_null() || ratio.number() > 0; };
  if (may_wait(a["inside_ops_ratio"]) || may_wait(b["inside_ops_ratio"])) {
    out += padded("waits inside ops", 28, false) + share(a["inside_ops_ratio"]) +
           share(b["inside_ops_ratio"]) + "\n";
  }
  for (const Json* side : {&a, &b}) {
    const std::string line = straggler_text((*side)["stragglers"]);
    if (!line.empty()) out += (*side)["label"].text() + ": " + line;
  }
  for (const Json& kind : report["kinds"].items()) {
    out += padded(kind["kind"].text() + " x" + std::to_string(kind["count"].integer()), 28, false) +
           time_cell(kind["time_s_a"]) + time_cell(kind["time_s_b"]) +
           padded(percent(kind["error"]), 12) + "   mean |error| of an op " +
           viz::percent_text(kind["mean_abs_error"].number()) +
           (kind["bytes"].is_null() ? "" : ", " + viz::bytes_text(kind["bytes"].integer())) + "\n";
  }
  for (const Json& one : report["collectives"].items()) {
    const std::int64_t in_a = one["bytes_a"].integer(), in_b = one["bytes_b"].integer();
    if (one["inside_bytes_a"].integer() + one["inside_bytes_b"].integer() == 0) continue;
    out += padded(one["group"].text() + " " + one["op"].text() + " x" +
                      std::to_string(one["count_a"].integer()),
                  28, false) +
           padded(viz::bytes_text(in_a), 10) + padded(viz::bytes_text(in_b), 10) +
           padded(in_a == in_b ? "" : percent(error_of(in_a, in_b)), 12) + "   " +
           viz::bytes_text(one["inside_bytes_a"].integer()) + " inside ops\n";
  }
  // What one rank holds nobody measures: a measured trace has it from its plan.
  const bool planned = a["memory"].text() == "planned" || b["memory"].text() == "planned";
  for (const Json& row : report["memory"].items()) {
    const std::int64_t in_a = row["peak_bytes_a"].integer(), in_b = row["peak_bytes_b"].integer();
    out += padded((planned ? "planned for " : "memory of ") + row["row"].text(), 28, false) +
           padded(viz::bytes_text(in_a), 10);
    if (planned && in_a == in_b) {
      out += "  of memory, by the plan of both\n";
      continue;
    }
    out += padded(viz::bytes_text(in_b), 10) + padded(percent(row["error"]), 12) + "\n";
  }
  const Json& resident = report["resident_memory"];
  const auto size = [](const Json& bytes) {
    return padded(bytes.is_null() ? "-" : viz::bytes_text(bytes.integer()), 10);
  };
  if (!resident["bytes_a"].is_null() || !resident["bytes_b"].is_null()) {
    out += padded("memory of all processes", 28, false) + size(resident["bytes_a"]) +
           size(resident["bytes_b"]) + padded(percent(resident["error"]), 12) + "\n";
  }
  if (report["ops"].empty()) return out + "no op differs\n";
  out += "ops that differ by the most time, of " +
         std::to_string(report["differing_ops"].integer()) + " that differ:\n";
  for (const Json& op : report["ops"].items()) {
    out += padded("  " + op["name"].text() + " on " + op["row"].text(), 28, false) +
           time_cell(op["time_s_a"]) + time_cell(op["time_s_b"]) +
           padded(percent(op["error"]), 12) + "\n";
  }
  const std::string& legend = report["buckets"].text();
  if (!legend.empty()) out += legend + "\n";
  const Json& weighted = report["weighted_abs_error"];
  if (weighted.is_null()) return out;
  return out + "all in all: the step differs by " + percent(report["step_time_error"]) +
         "; an op, weighted by its time, by " + viz::percent_text(weighted.number()) + "\n";
}

int compare(const CompareOptions& options) {
  Result<Trace> read_a = viz::load_trace(options.a);
  if (!read_a) return fail(read_a.error().message);
  Result<Trace> read_b = viz::load_trace(options.b);
  if (!read_b) return fail(read_b.error().message);
  Trace a = std::move(read_a).value(), b = std::move(read_b).value();
  // Before a prediction's rows are repeated for every rank: equal ones have no slowest.
  Json slow_a = stragglers_json(a), slow_b = stragglers_json(b);
  viz::align_rows(a, b);
  const Result<viz::TraceDifference> found = viz::difference(a, b);
  if (!found) return fail(options.b + ": " + found.error().message);
  const Json report =
      comparison(side_of(std::move(a), std::move(slow_a)), side_of(std::move(b), std::move(slow_b)),
                 found.value(), options.worst);
  const std::string text = options.json ? report.dump(2) + "\n" : text_of(report);
  print_text(text);
  return kDone;
}

}  // namespace

Command compare_command() {
  const auto o = std::make_shared<CompareOptions>();
  Command command{"compare", "two timelines of the same schedule"};
  command.options = {
      required({"A", &o->a, "trace, for example the predicted one"}),
      required({"B", &o->b, "trace of the same schedule, for example the measured one"}),
      {"--worst", &o->worst, "how many ops to list (20)"},
      {"--json", &o->json, "one JSON document on stdout"},
  };
  command.footer =
      "Example: rehearse run tiny-gpt-4-ranks --dry-run --trace predicted.trace; rehearse run "
      "tiny-gpt-4-ranks --trace measured.trace; rehearse compare predicted.trace measured.trace";
  command.perform = [o](const Given&) { return compare(*o); };
  return command;
}

}  // namespace rehearse::cli
