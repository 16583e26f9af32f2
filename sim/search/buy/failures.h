// SPDX-License-Identifier: Apache-2.0
// A long training run among failures, played through many times: which share of the time makes
// progress in a bad, a middling and a good run.
//
// Failures come to the whole machine, exponentially or in bursts (Weibull with a shape below 1:
// Schroeder and Gibson, A large-scale study of failures in high-performance computing systems, DSN
// 2006, find 0.7 to 0.8). Each ends the training: work since the last whole checkpoint is lost, a
// restart follows, which a further failure ends too, and the node is away until it is mended.
// Spares take its place; without one the run waits, or goes on with the replicas that are whole,
// and takes mended nodes back at a checkpoint, by a restart. With exponential failures and nodes
// mended at once the mean is Daly's complete formula (sim/formulas/closed_form.h, daly_share).
#pragma once

#include <cstdint>

namespace rehearse::sim {

struct Failures {
  double mtbf_s = 0;      // between failures of the whole machine
  double shape = 1;       // of the Weibull distribution; 1: exponential
  double save_s = 0;      // writing a checkpoint, training stops
  double interval_s = 0;  // of training between two checkpoints
  double restart_s = 0;   // from a failure until it trains again, the checkpoint read
  double repair_s = 0;    // until a failed node is back; 0: it is back at once
  std::int32_t nodes = 1, spares = 0;
  std::int32_t replicas = 1;    // data-parallel; nodes / replicas is what one takes
  bool fewer_replicas = false;  // goes on with those that are whole; else waits
};

// Shares of the time that make progress: nine runs in ten have at least p10, one in ten p90.
struct GoodputSpread {
  double p10 = 1, p50 = 1, p90 = 1, mean = 1;
};

// `work_s`: of training without failures or checkpoints. The same for the same seed everywhere but
// for the last digits of the C library. REQUIRES: mtbf_s, interval_s, work_s, shape > 0; runs > 0.
GoodputSpread simulate_failures(const Failures& failures, double work_s, std::int32_t runs,
                                std::uint64_t seed);

}  // namespace rehearse::sim
