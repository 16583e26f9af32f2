// SPDX-License-Identifier: Apache-2.0
#include "sim/search/buy/failures.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "schedules/base/random.h"

namespace rehearse::sim {
namespace {

constexpr double kHopeless = 1000;  // a run that takes so many times its work is given up

class Run {
 public:
  Run(const Failures& failures, double work, std::uint64_t seed)
      : f_(failures),
        work_(work),
        scale_(failures.mtbf_s / std::tgamma(1 + 1 / failures.shape)),
        seed_(seed) {
    fails_at_ = draw();
  }

  // The share of its time that made progress.
  double share() {
    bool restarts = false;
    while (done_ < work_ && now_ < kHopeless * work_) {
      if (speed() <= 0) {
        restarts = true;
        wait();
      } else if (restarts) {
        restarts = !restart();
      } else {
        restarts = !train();
      }
    }
    return now_ > 0 ? std::min(done_, work_) / now_ : 1;
  }

 private:
  // Time to the next failure.
  double draw() {
    const double uniform = (static_cast<double>(split_mix(seed_, drawn_++) >> 11) + 1) * 0x1p-53;
    return scale_ * std::pow(-std::log(uniform), 1 / f_.shape);
  }

  // At `now_`: a node is away from here on.
  void fail() {
    now_ = fails_at_;
    if (f_.repair_s > 0) back_at_.push_back(now_ + f_.repair_s);
    fails_at_ = now_ + draw();
  }

  // Speed that the nodes at hand allow; mended ones are dropped from the list, which ascends.
  double speed() {
    const auto mended = std::ranges::upper_bound(back_at_, now_);
    back_at_.erase(back_at_.begin(), mended);
    const double missing = static_cast<double>(back_at_.size()) - f_.spares;
    if (missing <= 0) return 1;
    if (!f_.fewer_replicas || missing >= f_.nodes) return 0;
    const double per_replica = std::max(1.0, static_cast<double>(f_.nodes) / f_.replicas);
    return std::floor((f_.nodes - missing) / per_replica) / (f_.nodes / per_replica);
  }

  void wait() {
    if (fails_at_ < back_at_.front()) return fail();
    now_ = back_at_.front();
  }

  // False: a failure ended it.
  bool restart() {
    if (fails_at_ < now_ + f_.restart_s) {
      fail();
      return false;
    }
    now_ += f_.restart_s;
    running_ = speed();
    return running_ > 0;
  }

  // Whole intervals up to the next failure or the next mended node, then one more. False: a failure
  // ended it, or nodes are back that it can go on with.
  bool train() {
    const double each = f_.interval_s * running_;  // work of an interval
    const double cycle = f_.interval_s + f_.save_s;
    double until = fails_at_;
    if (running_ < 1 && !back_at_.empty()) until = std::min(until, back_at_.front());
    const double whole =
        std::min(std::floor((until - now_) / cycle), std::ceil((work_ - done_) / each) - 1);
    if (whole > 0) {
      now_ += whole * cycle;
      done_ += whole * each;
    }
    const double piece = std::min(each, work_ - done_);
    const double end = now_ + piece / running_ + f_.save_s;
    if (fails_at_ < end) {
      fail();
      return false;
    }
    now_ = end;
    done_ += piece;
    return running_ >= 1 || speed() <= running_;
  }

  const Failures& f_;
  double work_, scale_;
  std::uint64_t seed_, drawn_ = 0;
  double now_ = 0, done_ = 0, running_ = 1, fails_at_ = 0;
  std::vector<double> back_at_;  // ascending
};

}  // namespace

GoodputSpread simulate_failures(const Failures& failures, double work_s, std::int32_t runs,
                                std::uint64_t seed) {
  std::vector<double> shares;
  double time = 0;  // per work, summed: the mean is of times, as formulas have it
  for (std::int32_t run = 0; run < runs; ++run) {
    shares.push_back(
        Run(failures, work_s, split_mix(seed, static_cast<std::uint64_t>(run))).share());
    time += 1 / std::max(shares.back(), 1e-12);
  }
  std::ranges::sort(shares);
  const auto at = [&](double quantile) {
    const double last = static_cast<double>(shares.size() - 1);
    return shares[static_cast<std::size_t>(std::lround(quantile * last))];
  };
  return {.p10 = at(0.1), .p50 = at(0.5), .p90 = at(0.9), .mean = runs / time};
}

}  // namespace rehearse::sim
