// SPDX-License-Identifier: Apache-2.0
// Bodies with their prices and what they send: each made and priced once, and what ops run one
// after another added up once.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "schedules/ir/placed_recompute.h"
#include "schedules/ir/schedule.h"
#include "sim/predict/pricing/body_collectives.h"
#include "sim/predict/pricing/pair_bodies.h"
#include "sim/predict/pricing/pricing.h"

namespace rehearse::sim {

// A body with its price and what it sends, once per shape, and per layer where a run measured the
// rows of its experts.
struct PricedBody {
  BodyCost cost;
  ExpertPieces pieces;  // for where it runs as half of a pair
  std::vector<Traffic> traffic;
};

class PricedBodies {
 public:
  // Bodies that ops run one after another, as one, and what they send.
  struct Sum {
    BodyCost cost;
    std::vector<Traffic> traffic;
  };
  using Bodies = std::vector<const PricedBody*>;

  // REQUIRES: all of them outlive it.
  PricedBodies(const Schedule& schedule, const Layout& layout, const ComputeModel& compute,
               const Network& network)
      : s_(schedule),
        layout_(layout),
        compute_(compute),
        collectives_(network, layout),
        placed_(schedule) {}

  // Whether an R has gone before the op, of its micro-batch.
  bool apart(const Op& op) const { return placed_.of(op); }
  // Appends the op's. Most stages run the same ones.
  void collect(const Op& op, Bodies& bodies);
  const Sum& sum_of(const Bodies& bodies);
  // Both at once on one device; `both`: the sum of them.
  BodyCost paired(BodyCost both, std::span<const PricedBody* const> forward,
                  std::span<const PricedBody* const> backward) const;

 private:
  const PricedBody& body(SegmentInfo segment, const Op& op);

  const Schedule& s_;
  const Layout& layout_;
  const ComputeModel& compute_;
  BodyCollectives collectives_;
  const PlacedRecompute placed_;
  std::map<std::pair<BodyShape, std::int32_t>, PricedBody> bodies_;
  std::map<Bodies, Sum> sums_;
};

}  // namespace rehearse::sim
