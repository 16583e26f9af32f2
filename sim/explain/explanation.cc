// SPDX-License-Identifier: Apache-2.0
#include "sim/explain/explanation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "sim/report/report_units.h"

namespace rehearse::sim {
namespace {

std::string duration(std::int64_t ns) {
  if (ns == 0) return "0";
  return report::seconds(static_cast<double>(std::llabs(ns)) * 1e-9);
}
std::string signed_duration(std::int64_t ns) {
  return ns == 0 ? "0" : (ns < 0 ? "-" : "+") + duration(ns);
}

const Json* value_of(const Explained& side, const std::string& key) {
  const auto found = std::ranges::find(side.keys, key, &std::pair<std::string, Json>::first);
  return found == side.keys.end() ? nullptr : &found->second;
}

// A trace knows a few keys, a report all of a plan: a key that the one kind never says is no
// difference.
std::vector<DifferingKey> differing_keys(const Explained& a, const Explained& b) {
  const bool whole = a.what != "trace" && b.what != "trace";
  std::vector<DifferingKey> out;
  for (const auto& [key, value] : a.keys) {
    const Json* other = value_of(b, key);
    if (other == nullptr ? whole : other->dump() != value.dump()) {
      out.push_back({key, value, other == nullptr ? Json() : *other});
    }
  }
  for (const auto& [key, value] : b.keys) {
    if (whole && value_of(a, key) == nullptr) out.push_back({key, Json(), value});
  }
  return out;
}

std::vector<MemoryDifference> memory_of(const Explained& a, const Explained& b) {
  std::vector<MemoryDifference> out;
  for (const auto& [part, bytes] : a.memory) {
    const auto found =
        std::ranges::find(b.memory, part, &std::pair<std::string, std::int64_t>::first);
    if (found != b.memory.end()) out.push_back({part, bytes, found->second});
  }
  return out;
}

// The causes that make up most of the difference, at least nine tenths of what goes its way, and
// what works most against it.
std::string main_causes(const std::vector<CauseDifference>& causes, std::int64_t difference) {
  constexpr std::size_t kMost = 3;
  std::int64_t with = 0, told = 0;
  const CauseDifference* against = nullptr;
  for (const CauseDifference& cause : causes) {
    if ((cause.difference() > 0) == (difference > 0)) {
      with += cause.difference();
    } else if (against == nullptr && cause.difference() != 0) {
      against = &cause;
    }
  }
  std::vector<std::string> parts;
  for (const CauseDifference& cause : causes) {
    if (cause.difference() == 0 || (cause.difference() > 0) != (difference > 0)) continue;
    if (parts.size() == kMost || std::llabs(told) * 10 >= std::llabs(with) * 9) break;
    told += cause.difference();
    parts.push_back(
        fmt::format("{} {}", words_of(cause.causes), signed_duration(cause.difference())));
  }
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  }
  if (against != nullptr && std::llabs(against->difference()) * 20 >= std::llabs(difference)) {
    text += fmt::format("; against it works {} {}", words_of(against->causes),
                        signed_duration(against->difference()));
  }
  return text;
}

std::string sentence_of(const Explanation& e) {
  const std::int64_t a = e.a.breakdown.step_ns, b = e.b.breakdown.step_ns, difference = b - a;
  if (difference == 0) {
    const bool moved = std::ranges::any_of(
        e.causes, [](const CauseDifference& cause) { return cause.difference() != 0; });
    return std::string("B takes as long as A") +
           (moved ? ", for other causes." : ", for the same causes.");
  }
  std::string text =
      fmt::format("B takes {} {} than A ({} instead of {}, {:+.1f} %): {}.", duration(difference),
                  difference > 0 ? "longer" : "less", duration(b), duration(a),
                  100 * static_cast<double>(difference) / static_cast<double>(a),
                  main_causes(e.causes, difference));
  if (e.a.tokens && e.b.tokens && *e.a.tokens != *e.b.tokens) {
    const double per_token = static_cast<double>(b) / static_cast<double>(*e.b.tokens) /
                             (static_cast<double>(a) / static_cast<double>(*e.a.tokens));
    text += fmt::format(" Its step has {:.4g} times the tokens: per token {:+.1f} %.",
                        static_cast<double>(*e.b.tokens) / static_cast<double>(*e.a.tokens),
                        100 * (per_token - 1));
  }
  return text;
}

Json side_json(const Explained& side) {
  Json json{{"what", side.what},
            {"label", side.measured ? "measured" : "predicted"},
            {"title", side.title},
            {"step_ns", side.breakdown.step_ns},
            {"ranks", side.ranks},
            {"tokens", side.tokens},
            {"confidence", side.confidence}};
  json["notes"] = Json(side.notes);
  return json;
}

std::string label_of(const Explained& side) {
  const std::string from = side.what == "scenario" ? "" : " " + side.what;
  return (side.measured ? "measured" : "predicted") + from + ", " +
         fmt::format("{} rank{}", side.ranks, side.ranks == 1 ? "" : "s");
}

std::string value_text(const Json& value) {
  return value.is_string() ? value.text() : value.is_null() ? "-" : value.dump();
}

}  // namespace

Explanation explain(Explained a, Explained b) {
  Explanation out{.a = std::move(a), .b = std::move(b)};
  out.causes = differences(out.a.breakdown, out.b.breakdown);
  out.keys = differing_keys(out.a, out.b);
  out.memory = memory_of(out.a, out.b);
  out.sentence = sentence_of(out);
  return out;
}

std::string explanation_json(const Explanation& e) {
  Json json{{"schema", "rehearse.explanation/1"},
            {"a", side_json(e.a)},
            {"b", side_json(e.b)},
            {"difference_ns", e.b.breakdown.step_ns - e.a.breakdown.step_ns}};
  json["causes"] = Json::array();
  for (const CauseDifference& cause : e.causes) {
    json["causes"].push_back({{"cause", words_of(cause.causes)},
                              {"of", Json(names_of(cause.causes))},
                              {"a_ns", cause.a},
                              {"b_ns", cause.b},
                              {"difference_ns", cause.difference()}});
  }
  json["keys"] = Json::array();
  for (const DifferingKey& key : e.keys) {
    json["keys"].push_back({{"key", key.key}, {"a", key.a}, {"b", key.b}});
  }
  json["memory"] = Json::array();
  for (const MemoryDifference& part : e.memory) {
    json["memory"].push_back({{"part", part.part},
                              {"a_bytes", part.a},
                              {"b_bytes", part.b},
                              {"difference_bytes", part.b - part.a}});
  }
  json["sentence"] = e.sentence;
  return json.dump(2) + "\n";
}

std::string explanation_text(const Explanation& e) {
  static constexpr std::size_t kWords = 52;  // columns
  const auto row = [](const std::string& words, const std::string& a, const std::string& b,
                      const std::string& difference) {
    if (words.size() <= kWords) {
      return fmt::format("{:<{}}{:>14}{:>14}{:>14}\n", words, kWords, a, b, difference);
    }
    return fmt::format("{}\n{:<{}}{:>14}{:>14}{:>14}\n", words, "", kWords, a, b, difference);
  };
  std::string text = e.sentence + "\n\n";
  text +=
      fmt::format("A: {} ({})\nB: {} ({})\n", e.a.title, label_of(e.a), e.b.title, label_of(e.b));
  text += row("the mean rank's step", "A", "B", "B - A");
  for (const CauseDifference& cause : e.causes) {
    text += row("  " + words_of(cause.causes), duration(cause.a), duration(cause.b),
                signed_duration(cause.difference()));
  }
  const std::int64_t a = e.a.breakdown.step_ns, b = e.b.breakdown.step_ns;
  text += row("step", duration(a), duration(b), signed_duration(b - a));
  bool any = false;
  for (const MemoryDifference& part : e.memory) {
    if (part.a == part.b) continue;
    if (!any) text += "memory of the fullest rank\n";
    any = true;
    text += row("  " + part.part, report::bytes(part.a), report::bytes(part.b),
                (part.b < part.a ? "-" : "+") + report::bytes(std::llabs(part.b - part.a)));
  }
  if (!e.keys.empty()) text += "keys that differ\n";
  for (const DifferingKey& key : e.keys) {
    text += fmt::format("  {}: {} -> {}\n", key.key, value_text(key.a), value_text(key.b));
  }
  return text;
}

}  // namespace rehearse::sim
