// SPDX-License-Identifier: Apache-2.0
#include "cli/trace/trace_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "cli/commands.h"
#include "schedules/base/json_reader.h"
#include "viz/analysis/units_text.h"
#include "viz/picture/letters/letters.h"

namespace rehearse::cli {
namespace {

struct Amount {
  double value = 0;
  double unit_ns = 0;  // 0: none given
};

std::optional<Amount> amount_of(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, double>, 5> kUnits{
      {{"ns", 1}, {"us", 1e3}, {"µs", 1e3}, {"ms", 1e6}, {"s", 1e9}}};
  Amount amount;
  for (const auto& [name, ns] : kUnits) {
    if (text.size() > name.size() && text.ends_with(name)) {
      amount.unit_ns = ns;
      text.remove_suffix(name.size());
      break;
    }
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), amount.value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(amount.value)) {
    return std::nullopt;
  }
  return amount;
}

std::optional<std::int32_t> rank_of(std::string_view text) {
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

Result<> parse_range(const std::string& text, const Trace& trace, Nanoseconds& begin,
                     Nanoseconds& end) {
  const std::size_t colon = text.find(':');
  std::optional<Amount> from, to;
  if (colon != std::string::npos) {
    from = amount_of(std::string_view(text).substr(0, colon));
    to = amount_of(std::string_view(text).substr(colon + 1));
  }
  if (!from || !to) return Error{"--range: \"" + text + "\" is no range of times such as 0:50ms"};
  const double common = std::max(from->unit_ns, to->unit_ns) > 0 ? 0 : 1e9;
  const auto time = [&](const Amount& amount, const Amount& other) {
    return amount.value * (amount.unit_ns > 0  ? amount.unit_ns
                           : other.unit_ns > 0 ? other.unit_ns
                                               : common);
  };
  const double a = time(*from, *to), b = time(*to, *from);
  if (!(a < b) || std::fabs(a) > 1e15 || std::fabs(b) > 1e15) {
    return Error{"--range: \"" + text + "\" does not end after it begins"};
  }
  const std::int64_t step = trace.step().value;
  const std::int64_t first = std::max<std::int64_t>(0, std::llround(a)),
                     last = std::min<std::int64_t>(step, std::llround(b));
  if (first >= last) {
    return Error{"--range: \"" + text + "\" lies outside the step, which takes " +
                 viz::time_text(step)};
  }
  begin = trace.begin + Nanoseconds{first};
  end = trace.begin + Nanoseconds{last};
  return {};
}

Result<> parse_ranks(const std::string& text, const Trace& trace, std::int32_t& first,
                     std::int32_t& last) {
  const std::size_t dash = text.find('-');
  const auto from = rank_of(std::string_view(text).substr(0, dash));
  const auto to =
      dash == std::string::npos ? from : rank_of(std::string_view(text).substr(dash + 1));
  if (!from || !to || *to < *from)
    return Error{"--ranks: \"" + text + "\" is no range of ranks such as 0-15"};
  first = trace.num_rows();
  last = 0;
  for (std::int32_t row = 0; row < trace.num_rows(); ++row) {
    const Rank known = trace.rows[static_cast<std::size_t>(row)].first_rank;
    const std::int32_t rank = known ? known.value : row;
    if (rank < *from || rank > *to) continue;
    first = std::min(first, row);
    last = std::max(last, row + 1);
  }
  if (first >= last) return Error{"--ranks: no row of the trace begins with a rank in " + text};
  return {};
}

void say_lost_letters(const viz::Scene& scene, const std::string& path) {
  const auto lost = [](const viz::Text& text) { return !viz::font_has(text.text); };
  std::vector<const viz::Scene*> scenes{&scene};
  for (const viz::Scene& layer : scene.layers) scenes.push_back(&layer);
  for (const viz::Scene* one : scenes) {
    const auto found = std::ranges::find_if(one->texts, lost);
    if (found == one->texts.end()) continue;
    const std::string why = viz::why_no_letters();
    print_error(path + ": no font here has the letters of " + json_excerpt(found->text) +
                ", and ? stands for them: --svg keeps them" +
                (why.empty() ? "" : " (" + why + ")"));
    return;
  }
}

}  // namespace rehearse::cli
