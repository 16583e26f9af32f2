// SPDX-License-Identifier: Apache-2.0
#include "schedules/model/config/near_miss.h"

#include <algorithm>
#include <cstdint>

#include "schedules/base/json_reader.h"

namespace rehearse {
namespace {

constexpr std::int32_t kTypingMistake = 2;  // edits
constexpr std::size_t kShortest = 3;        // letters of a part that is cut short

// The part up to the next underscore; takes it off `rest`.
std::string_view take_part(std::string_view& rest) {
  const std::size_t end = std::min(rest.find('_'), rest.size());
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return part;
}

// Letters of `whole`, its first one and others in their order.
bool is_cut(std::string_view part, std::string_view whole) {
  if (part == whole) return true;
  if (part.size() < kShortest || part.front() != whole.front()) return false;
  std::size_t at = 0;
  for (const char letter : whole) {
    if (at < part.size() && part[at] == letter) ++at;
  }
  return at == part.size();
}

bool abbreviates(std::string_view word, std::string_view whole) {
  if (std::ranges::count(word, '_') != std::ranges::count(whole, '_')) return false;
  while (!word.empty() && !whole.empty()) {
    if (!is_cut(take_part(word), take_part(whole))) return false;
  }
  return word.empty() && whole.empty();
}

}  // namespace

std::string_view near_miss(std::string_view word, std::span<const std::string_view> known) {
  const std::string_view best = nearest(word, known);
  if (!best.empty() && edit_distance(word, best) <= kTypingMistake) return best;
  const auto whole = std::ranges::find_if(
      known, [word](std::string_view candidate) { return abbreviates(word, candidate); });
  return whole == known.end() ? std::string_view{} : *whole;
}

}  // namespace rehearse
