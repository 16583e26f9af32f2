// Measures this machine: the kernels of a backend, what threads lose to each other, what the
// scheduler takes, collectives and copies among ranks of one process.
//
// The tables are for the simulator, which reads them from a file (calibration_file.h); nothing here
// knows how they are used. Data are random; what a step reads cold (weights, saved activations) is
// cold here. One thread unless said. (Processes over Gloo would add rows with other `nodes`.)
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "exec/backend.h"
#include "schedules/body.h"
#include "schedules/result.h"
#include "schedules/scenario.h"

namespace rehearse::exec {

// C[m,n] (+)= A[m,k] B[k,n], as a body's node counts it; a weight gradient with its bias' sums.
struct GemmTime {
  GemmRole role{};
  std::int64_t m = 0, n = 0, k = 0;
  double us = 0;
};
struct KernelTime {
  std::string_view op;  // a word of the calibration's memory_bound list
  bool backward = false;
  std::int64_t bytes = 0;  // read and written, as a body's node counts them
  double us = 0;
};
struct AttentionTime {
  bool backward = false;
  std::int64_t heads = 0, sequence = 0, head_dim = 0;
  double us = 0;
};
struct ExchangeTime {
  OpKind kind{};  // a collective; Send: a transfer
  std::int32_t ranks = 2;
  std::int64_t bytes = 0;  // the whole array
  double us = 0;
};

struct MachineTables {
  std::string cpu, instruction_set, date;  // date: of the measurement, UTC
  std::int32_t cores = 1;                  // that this process may use
  std::int64_t memory_bytes = 0;
  std::vector<GemmTime> gemm;
  std::vector<KernelTime> kernels;
  std::vector<AttentionTime> attention;
  std::vector<ExchangeTime> exchanges;
  // Time of each while every core computes, over its time alone.
  double products_together = 1, attention_together = 1, kernels_together = 1;
  double op_us = 0;        // of the scheduler, per op of a schedule
  double meeting_us = 0;   // a collective: from the last rank's arrival until all go on
  double handover_us = 0;  // a transfer: from both ends' arrival until the receiver goes on
  double noise = 0;        // median spread of a point's repetitions (quartiles over median)
  double seconds = 0;      // that it took
};

struct CalibrateOptions {
  bool quick = false;               // a coarser grid, fewer repetitions
  std::vector<Scenario> scenarios;  // also measure the very shapes of these
  std::function<void(std::string_view what, double share)> progress;
};

// REQUIRES: a synchronous backend that computes in fp32; nothing else runs on the machine, else the
// tables say so (`noise`).
MachineTables calibrate(Backend& backend, const CalibrateOptions& options);

}  // namespace rehearse::exec
