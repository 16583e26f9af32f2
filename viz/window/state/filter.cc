// SPDX-License-Identifier: Apache-2.0
#include "viz/window/state/filter.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "schedules/trace/kind_name.h"

namespace rehearse::viz {
namespace {

// The words between commas, without spaces around them.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  while (true) {
    const std::size_t comma = text.find(',');
    std::string_view word = text.substr(0, comma);
    while (!word.empty() && word.front() == ' ') word.remove_prefix(1);
    while (!word.empty() && word.back() == ' ') word.remove_suffix(1);
    words.emplace_back(word);
    if (comma == std::string_view::npos) return words;
    text.remove_prefix(comma + 1);
  }
}

bool same_name(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) {
    const auto upper = [](char c) {
      return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    };
    return upper(x) == upper(y);
  });
}

// "SEND" and "SEND_F" name a SEND of activations; an op of another tool has its own name.
bool is_called(const Trace& trace, const TraceClass& c, std::string_view word) {
  return same_name(word, kind_name(c.kind, c.payload)) || same_name(word, traits(c.kind).name) ||
         (c.name >= 0 && same_name(word, trace.text(c.name)));
}

bool whole_number(std::string_view text, std::int32_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && value >= 0;
}

// "2ms" [ns].
std::optional<double> length_of(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, double>, 5> kLengths{
      {{"ns", 1}, {"us", 1e3}, {"µs", 1e3}, {"ms", 1e6}, {"s", 1e9}}};
  for (const auto& [name, ns] : kLengths) {
    if (!text.ends_with(name)) continue;
    text.remove_suffix(name.size());
    while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
    const std::string number(text);
    char* end = nullptr;
    const double value = std::strtod(number.c_str(), &end);
    const bool whole = end == number.c_str() + number.size() && !number.empty() &&
                       number.find_first_not_of("0123456789.e") == std::string::npos;
    if (!whole || !std::isfinite(value)) break;
    return value * ns;
  }
  return std::nullopt;
}

std::optional<NumberSet> numbers_of(const Filter& filter, FilterPart part) {
  if (filter.of(part).empty()) return std::nullopt;
  Result<NumberSet> set = NumberSet::parse(filter.of(part));
  return set ? std::optional(std::move(set).value()) : std::nullopt;
}

}  // namespace

bool Filter::empty() const {
  return std::ranges::all_of(text, &std::string::empty);
}
bool Filter::by_ops() const {
  Filter others = *this;
  others.of(FilterPart::Ranks).clear();
  return !others.empty();
}

Result<NumberSet> NumberSet::parse(std::string_view text) {
  NumberSet set;
  for (const std::string& word : words_of(text)) {
    const std::size_t slash = std::min(word.find('/'), word.size());
    const std::string_view span = std::string_view(word).substr(0, slash);
    const std::size_t dash = std::min(span.find('-'), span.size());
    Range range;
    const bool first = whole_number(span.substr(0, dash), range.first);
    range.last = range.first;
    const bool last = dash == span.size() || whole_number(span.substr(dash + 1), range.last);
    const bool step =
        slash == word.size() || whole_number(std::string_view(word).substr(slash + 1), range.step);
    if (!first || !last || !step || range.step == 0 || range.last < range.first)
      return Error{"\"" + word + "\" is no number or range, such as 0-15 or 0-63/8"};
    set.ranges_.push_back(range);
  }
  return set;
}

bool NumberSet::has(std::int32_t number) const {
  return std::ranges::any_of(ranges_, [number](const Range& range) {
    return number >= range.first && number <= range.last &&
           (number - range.first) % range.step == 0;
  });
}

std::string filter_fault(const Trace& trace, FilterPart part, const std::string& text) {
  if (text.empty()) return {};
  if (part == FilterPart::Longer)
    return length_of(text) ? std::string{} : "\"" + text + "\" is no length of time, such as 2ms";
  if (part != FilterPart::Kinds) {
    const Result<NumberSet> set = NumberSet::parse(text);
    return set ? std::string{} : set.error().message;
  }
  for (const std::string& word : words_of(text)) {
    const bool known = std::ranges::any_of(
        trace.classes, [&](const TraceClass& c) { return is_called(trace, c, word); });
    if (!known) return "no op of this trace is of the kind \"" + word + "\"";
  }
  return {};
}

std::vector<std::uint8_t> kept_ops(const Trace& trace, const Coloring& chunks,
                                   const Filter& filter) {
  // What an op's class says is asked once per class.
  std::vector<std::uint8_t> of_class(trace.classes.size(), 1);
  const std::string& kinds = filter.of(FilterPart::Kinds);
  if (filter_fault(trace, FilterPart::Kinds, kinds).empty() && !kinds.empty()) {
    const std::vector<std::string> words = words_of(kinds);
    for (std::size_t i = 0; i < of_class.size(); ++i) {
      of_class[i] = std::ranges::any_of(
          words, [&](const std::string& word) { return is_called(trace, trace.classes[i], word); });
    }
  }
  const auto of_chunks = numbers_of(filter, FilterPart::Chunks),
             microbatches = numbers_of(filter, FilterPart::Microbatches);
  const double least = length_of(filter.of(FilterPart::Longer)).value_or(-1);
  std::vector<std::uint8_t> kept(static_cast<std::size_t>(trace.num_ops()));
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const OpId op{static_cast<std::int32_t>(i)};
    if (of_class[static_cast<std::size_t>(trace.op_class[i])] == 0) continue;
    if (of_chunks && !(trace.class_of(op).stage && of_chunks->has(chunks.chunk_of(op)))) continue;
    if (microbatches && !microbatches->has(trace.microbatch[i])) continue;
    if (static_cast<double>(trace.end_ns[i] - trace.start_ns[i]) <= least) continue;
    kept[i] = 1;
  }
  return kept;
}

std::vector<std::uint8_t> kept_rows(const Trace& trace, const Filter& filter) {
  std::vector<std::uint8_t> kept(trace.rows.size(), 1);
  const auto ranks = numbers_of(filter, FilterPart::Ranks);
  for (std::size_t row = 0; ranks && row < kept.size(); ++row) {
    const Rank first = trace.rows[row].first_rank;
    kept[row] = ranks->has(first ? first.value : static_cast<std::int32_t>(row));
  }
  return kept;
}

}  // namespace rehearse::viz
