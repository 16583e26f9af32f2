// SPDX-License-Identifier: Apache-2.0
#include "viz/profile/waits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>

namespace rehearse::viz {
namespace {

constexpr double kStandsOut = 0.1;  // so much slower than the median is a straggler

class Waiting {
 public:
  explicit Waiting(const std::vector<RankProfile>& profiles) : profiles_(profiles) { meet(); }

  StepTimes times(std::size_t rank, const ProfiledStep& step) const {
    StepTimes out{.rank = profiles_[rank].rank,
                  .step = step.number,
                  .begin = step.begin,
                  .end = step.end,
                  .waits_for = std::vector<std::int64_t>(profiles_.size())};
    std::int64_t rest = step.end - step.begin;
    each_moment(rank, step.begin, step.end,
                [&](const Moment& moment, std::int64_t from, std::int64_t until) {
                  rest -= until - from;
                  switch (moment.doing) {
                    case Doing::Computes:
                      out.computing += until - from;
                      break;
                    case Doing::LoadsData:
                      out.data += until - from;
                      break;
                    case Doing::Host:
                      out.host += until - from;
                      break;
                    case Doing::Communicates: {
                      std::int64_t waited = 0;
                      blame(rank, moment, from, until, 0,
                            [&](std::int32_t whom, std::int64_t time) {
                              if (whom == static_cast<std::int32_t>(rank)) return;
                              out.waits_for[static_cast<std::size_t>(whom)] += time;
                              waited += time;
                            });
                      out.waiting += waited;
                      out.communicating += until - from - waited;
                      break;
                    }
                  }
                });
    out.host += rest;
    return out;
  }

 private:
  // Of an exchange: who comes last of those that it needs, and when; -1: nobody knows.
  struct Last {
    std::int32_t rank = -1;
    std::int64_t at = 0;
  };

  // Exchanges of one call: (rank, index), of different ranks.
  using Call = std::vector<std::pair<std::size_t, std::size_t>>;

  const Exchange& at(const Call::value_type& part) const {
    return profiles_[part.first].exchanges[part.second];
  }

  void meet() {
    std::map<std::string_view, std::map<std::size_t, std::vector<std::size_t>>> by_word;
    last_.resize(profiles_.size());
    for (std::size_t r = 0; r < profiles_.size(); ++r) {
      last_[r].resize(profiles_[r].exchanges.size());
      for (std::size_t i = 0; i < profiles_[r].exchanges.size(); ++i) {
        const Exchange& one = profiles_[r].exchanges[i];
        if (!one.meeting.empty()) by_word[one.meeting][r].push_back(i);
      }
    }
    for (const auto& [word, members] : by_word) {
      const std::size_t count = members.begin()->second.size();
      const bool alike = std::ranges::all_of(
          members, [&](const auto& member) { return member.second.size() == count; });
      if (members.size() < 2 || !alike) continue;  // not all files are here, or of the same time
      for (std::size_t k = 0; k < count; ++k) {
        Call call;
        for (const auto& [rank, list] : members) call.emplace_back(rank, list[k]);
        at(call.front()).whole ? know_last(call) : know_each_last(call);
      }
    }
  }

  // Of a word that several groups use: all members of a call are in it at one time.
  void know_each_last(Call call) {
    std::ranges::stable_sort(call, {}, [this](const auto& part) { return at(part).begin; });
    while (!call.empty()) {
      Call together;
      std::int64_t until = at(call.front()).end;
      std::erase_if(call, [&](const auto& part) {
        // The first is one of them, though it may be over at once.
        if (!together.empty() && at(part).begin >= until) return false;
        until = std::min(until, at(part).end);
        together.push_back(part);
        return true;
      });
      know_last(together);
    }
  }

  void know_last(const Call& call) {
    const auto last =
        std::ranges::max_element(call, {}, [this](const auto& part) { return at(part).begin; });
    const Last of{static_cast<std::int32_t>(last->first), at(*last).begin};
    for (const auto& [rank, index] : call) last_[rank][index] = of;
  }

  template <class Take>
  void each_moment(std::size_t rank, std::int64_t begin, std::int64_t end, const Take& take) const {
    const std::vector<Moment>& all = profiles_[rank].moments;
    auto it = std::ranges::upper_bound(all, begin, {}, &Moment::end);
    for (; it != all.end() && it->begin < end; ++it) {
      const std::int64_t from = std::max(begin, it->begin), until = std::min(end, it->end);
      if (from < until) take(*it, from, until);
    }
  }

  // Tells who is waited for in [from, until), and how long; what is communication itself is not
  // told.
  template <class Tell>
  void blame(std::size_t rank, const Moment& moment, std::int64_t from, std::int64_t until,
             std::size_t hops, const Tell& tell) const {
    if (moment.exchange < 0) return;
    const Last& last = last_[rank][static_cast<std::size_t>(moment.exchange)];
    if (last.rank < 0 || last.rank == static_cast<std::int32_t>(rank)) return;
    until = std::min(until, last.at);
    if (from >= until) return;
    const auto other = static_cast<std::size_t>(last.rank);
    std::int64_t told = from;
    each_moment(other, from, until, [&](const Moment& theirs, std::int64_t a, std::int64_t b) {
      if (told < a) tell(last.rank, a - told);
      told = b;
      if (theirs.doing != Doing::Communicates) {
        tell(last.rank, b - a);
      } else if (hops < profiles_.size()) {
        blame(other, theirs, a, b, hops + 1, tell);
      }
    });
    if (told < until) tell(last.rank, until - told);
  }

  const std::vector<RankProfile>& profiles_;
  std::vector<std::vector<Last>> last_;  // by rank, by exchange
};

// The lower one of an even number.
double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[(values.size() - 1) / 2];
}

// What a rank does that nobody else has a part in, with the words for it.
struct OwnPart {
  std::int64_t StepTimes::*time;
  std::string_view words;
};
constexpr OwnPart kOwnParts[]{{&StepTimes::computing, "it computes longer"},
                              {&StepTimes::data, "it waits longer for data"},
                              {&StepTimes::host, "its host takes longer"}};

void find_straggler(JobTimes& job) {
  const std::size_t ranks = job.ranks.size();
  const auto steps = static_cast<double>(job.steps.size() / ranks);
  std::vector<double> own(ranks), blamed(ranks), lasted(ranks);
  std::array<std::vector<double>, std::size(kOwnParts)> parts;
  parts.fill(own);
  for (std::size_t i = 0; i < job.steps.size(); ++i) {
    const StepTimes& step = job.steps[i];
    own[i % ranks] += static_cast<double>(step.own());
    lasted[i % ranks] += static_cast<double>(step.length());
    for (std::size_t r = 0; r < ranks; ++r) blamed[r] += static_cast<double>(step.waits_for[r]);
    for (std::size_t part = 0; part < parts.size(); ++part) {
      parts[part][i % ranks] += static_cast<double>(step.*kOwnParts[part].time);
    }
  }
  const auto most = static_cast<std::size_t>(std::ranges::max_element(blamed) - blamed.begin());
  // How much more it takes than the others' median.
  const auto usual_of = [most](std::vector<double> values) {
    values.erase(values.begin() + static_cast<std::ptrdiff_t>(most));
    return median(std::move(values));
  };
  const double usual = usual_of(own);
  const double others = std::accumulate(lasted.begin(), lasted.end(), 0.0) - lasted[most];
  if (ranks < 2) {
    job.sentence = "One rank alone: whom it waits for only the others' profiles tell.";
    return;
  }
  if (blamed[most] <= 0 || usual <= 0 || others <= 0) {
    job.sentence = "No rank is known to wait for another.";
    return;
  }
  job.slower = own[most] / usual - 1;
  job.share = blamed[most] / others;
  if (job.slower < kStandsOut) {
    job.sentence = fmt::format(
        "No rank stands out: rank {} is waited for most, {:.1f} % of the others' time, and takes "
        "{:.2f} times as long as their median.",
        job.ranks[most], 100 * job.share, 1 + job.slower);
    return;
  }
  job.straggler = static_cast<std::int32_t>(most);
  std::size_t cause = 0;
  double excess = 0;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const double more = parts[part][most] - usual_of(parts[part]);
    if (more <= excess) continue;
    excess = more;
    cause = part;
  }
  constexpr double kPerMs = 1e-6;
  job.sentence = fmt::format(
      "Rank {} is the straggler: the others wait {:.1f} % of their time for it. What it does alone "
      "takes {:.2f} ms a step, theirs {:.2f} ms (median); {}.",
      job.ranks[most], 100 * job.share, own[most] / steps * kPerMs, usual / steps * kPerMs,
      kOwnParts[cause].words);
}

// Times that lie a day or more apart are of different runs.
Result<> of_one_run(const std::vector<RankProfile>& profiles) {
  constexpr std::int64_t kDay = std::int64_t{86'400} * 1'000'000'000;
  const auto begins = [](const RankProfile& profile) { return profile.steps.front().begin; };
  const auto [first, last] = std::ranges::minmax_element(profiles, {}, begins);
  if (begins(*last) - begins(*first) < kDay) return {};
  return Error{last->path + ": lies a day or more behind " + first->path + ": of another run"};
}

}  // namespace

Result<JobTimes> job_times(std::vector<RankProfile>& profiles) {
  JobTimes job;
  std::ranges::stable_sort(profiles, {}, &RankProfile::rank);
  for (const RankProfile& profile : profiles) {
    if (profile.rank < 0) {
      return Error{profile.path + ": says no rank, and the file's name ends in no number"};
    }
    if (!job.ranks.empty() && job.ranks.back() == profile.rank) {
      return Error{profile.path + ": a second profile of rank " + std::to_string(profile.rank)};
    }
    if (profile.steps.empty()) return Error{profile.path + ": holds no step"};
    job.ranks.push_back(profile.rank);
  }
  if (const Result<> one = of_one_run(profiles); !one) return one.error();
  const Waiting waiting(profiles);
  for (const ProfiledStep& step : profiles.front().steps) {
    std::vector<const ProfiledStep*> of_each;
    for (const RankProfile& profile : profiles) {
      const auto same = std::ranges::find(profile.steps, step.number, &ProfiledStep::number);
      if (same != profile.steps.end()) of_each.push_back(&*same);
    }
    if (of_each.size() < profiles.size()) continue;
    for (std::size_t r = 0; r < profiles.size(); ++r) {
      job.steps.push_back(waiting.times(r, *of_each[r]));
    }
  }
  if (job.steps.empty()) {
    return Error{profiles.back().path + ": has no step that all the others have"};
  }
  find_straggler(job);
  return job;
}

}  // namespace rehearse::viz
