// SPDX-License-Identifier: Apache-2.0
#include "viz/profile/rank_profile.h"

#include <algorithm>
#include <charconv>
#include <limits>

namespace rehearse::viz {
namespace {

using Interval = std::pair<std::int64_t, std::int64_t>;

// In order, without overlaps.
std::vector<Interval> united(std::vector<Interval> spans) {
  std::erase_if(spans, [](const Interval& span) { return span.first >= span.second; });
  std::ranges::sort(spans);
  std::vector<Interval> out;
  for (const Interval& span : spans) {
    if (!out.empty() && span.first <= out.back().second) {
      out.back().second = std::max(out.back().second, span.second);
    } else {
      out.push_back(span);
    }
  }
  return out;
}

}  // namespace

std::int64_t step_number(std::string_view range) {
  constexpr std::string_view kWords[]{"ProfilerStep", "iteration", "Iteration", "iter",
                                      "step",         "Step",      "train_step"};
  for (const std::string_view word : kWords) {
    if (!range.starts_with(word)) continue;
    const std::size_t digits = range.find_first_not_of(" _#:=-", word.size());
    if (digits == std::string_view::npos) continue;
    std::int64_t number = -1;
    const char* const last = range.data() + range.size();
    const auto [end, fault] = std::from_chars(range.data() + digits, last, number);
    if (fault == std::errc() && end == last && number >= 0) return number;
  }
  return -1;
}

std::int32_t rank_in_name(const std::string& path) {
  std::string_view name = std::string_view(path).substr(path.find_last_of('/') + 1);
  name = name.substr(0, name.find('.'));
  name.remove_prefix(std::min(name.find_last_not_of("0123456789") + 1, name.size()));
  std::int32_t rank = -1;
  const auto [end, fault] = std::from_chars(name.data(), name.data() + name.size(), rank);
  return fault == std::errc() ? rank : -1;
}

std::string meeting_by_name(std::string_view kernel) {
  if (kernel.find("SendRecv") != std::string_view::npos) return {};
  return std::string(kernel.substr(0, kernel.find('(')));
}

void ProfileBuilder::step(std::int64_t number, std::int64_t begin, std::int64_t end) {
  if (begin >= end) return;
  const auto same = std::ranges::find(profile_.steps, number, &ProfiledStep::number);
  if (same == profile_.steps.end()) profile_.steps.push_back({number, begin, end});
}

void ProfileBuilder::add(std::int64_t begin, std::int64_t end, Doing doing, std::int32_t exchange) {
  if (begin >= end) return;
  auto& all = profile_.moments;
  if (!all.empty() && all.back().doing == doing && all.back().exchange == exchange) {
    all.back().end = end;
  } else {
    all.push_back({begin, end, doing, exchange});
  }
}

// Nothing is exchanged meanwhile: what is loaded, or the host's.
void ProfileBuilder::host(std::int64_t begin, std::int64_t end) {
  auto it = std::ranges::upper_bound(loading_, begin, {}, &Span::second);
  for (; it != loading_.end() && it->first < end; ++it) {
    add(begin, it->first, Doing::Host);
    begin = std::max(begin, it->first);
    add(begin, std::min(end, it->second), Doing::LoadsData);
    begin = std::min(end, it->second);
  }
  add(begin, end, Doing::Host);
}

// [begin, end), in which the rank does not compute.
void ProfileBuilder::explain(std::int64_t begin, std::int64_t end) {
  struct Piece {
    std::int64_t begin, end;
    std::int32_t exchange;
  };
  std::vector<Piece> pieces;  // from the last to the first
  const auto ends = [this](std::int32_t i) {
    return profile_.exchanges[static_cast<std::size_t>(i)].end;
  };
  std::int64_t time = end;
  auto it = std::ranges::upper_bound(by_end_, end, {}, ends);
  while (it != by_end_.begin() && time > begin) {
    const std::int32_t index = *--it;
    const Exchange& one = profile_.exchanges[static_cast<std::size_t>(index)];
    if (one.end <= begin) break;
    const std::int64_t until = std::min(one.end, time), from = std::max(one.begin, begin);
    if (from >= until) continue;
    pieces.push_back({until, time, -1});
    pieces.push_back({from, until, index});
    time = from;
  }
  host(begin, time);
  for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
    if (piece->exchange < 0) {
      host(piece->begin, piece->end);
    } else {
      add(piece->begin, piece->end, Doing::Communicates, piece->exchange);
    }
  }
}

RankProfile ProfileBuilder::finish(std::int64_t base) {
  auto& exchanges = profile_.exchanges;
  std::erase_if(exchanges, [](const Exchange& one) { return one.begin > one.end; });
  std::ranges::stable_sort(exchanges, {}, &Exchange::begin);
  for (std::size_t i = 0; i < exchanges.size(); ++i) {
    by_end_.push_back(static_cast<std::int32_t>(i));
  }
  std::ranges::stable_sort(by_end_, {}, [&exchanges](std::int32_t i) {
    return exchanges[static_cast<std::size_t>(i)].end;
  });
  computing_ = united(std::move(computing_));
  loading_ = united(std::move(loading_));

  std::int64_t first = std::numeric_limits<std::int64_t>::max(), last = 0;
  const auto reach = [&](std::int64_t begin, std::int64_t end) {
    first = std::min(first, begin);
    last = std::max(last, end);
  };
  for (const Span& span : computing_) reach(span.first, span.second);
  for (const Exchange& one : exchanges) reach(one.begin, one.end);
  if (profile_.steps.empty() && first < last) profile_.steps.push_back({0, first, last});
  for (const ProfiledStep& one : profile_.steps) reach(one.begin, one.end);
  std::ranges::sort(profile_.steps, {}, &ProfiledStep::begin);

  std::int64_t time = first;
  for (const Span& span : computing_) {
    if (time < span.first) explain(time, span.first);
    add(span.first, span.second, Doing::Computes);
    time = span.second;
  }
  if (time < last) explain(time, last);

  for (ProfiledStep& one : profile_.steps) one.begin += base, one.end += base;
  for (Moment& one : profile_.moments) one.begin += base, one.end += base;
  for (Exchange& one : exchanges) one.begin += base, one.end += base;
  return std::move(profile_);
}

}  // namespace rehearse::viz
