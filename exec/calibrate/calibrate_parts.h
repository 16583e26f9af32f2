// SPDX-License-Identifier: Apache-2.0
// The parts of a calibration, one file each. Each appends to the tables what it measures.
#pragma once

#include <array>

#include "exec/calibrate/calibrate.h"
#include "exec/calibrate/measure.h"

namespace rehearse::exec {

// How an exchange is measured: one that leaves the whole array everywhere, or a sum, goes over what
// was brought, as gradients' do; a sum also beside it (`apart`), as those of a file's own groups.
struct ExchangeForm {
  OpKind kind{};
  bool apart = false;
  bool in_place() const {
    return !apart &&
           (kind == OpKind::AllReduce || kind == OpKind::Broadcast || kind == OpKind::Reduce);
  }
};
inline constexpr std::array<ExchangeForm, 8> kExchangeForms{{{OpKind::AllReduce},
                                                             {OpKind::AllGather},
                                                             {OpKind::ReduceScatter},
                                                             {OpKind::AllToAll},
                                                             {OpKind::Broadcast},
                                                             {OpKind::Reduce},
                                                             {OpKind::AllReduce, true},
                                                             {OpKind::Reduce, true}}};

inline constexpr Lane kLane{0, Stream::Compute};  // that measures

struct Calibration {
  Device& device;
  Kernels& kernels;
  const CalibrateOptions& options;
  const CalibrateSizes& sizes;
  Stopwatch watch;
  RotatingMemory memory, written;  // what kernels read stays random
  RotatingMemory warm;             // what a step has just used
  MachineTables tables;
  std::vector<double> rounds_us;  // of one product, between everything else
  bool gpu() const { return device.asynchronous(); }
  std::int64_t element() const { return bytes_of(options.type); }
  void progress(std::string_view what, double share) const {
    if (options.progress) options.progress(what, share);
  }
};

void measure_gemm(Calibration& c);  // calibrate_gemm.cc
void measure_round(Calibration& c);
void measure_grouped(Calibration& c);       // calibrate_grouped.cc
void measure_memory_bound(Calibration& c);  // calibrate_kernels.cc
void measure_attention(Calibration& c);
void measure_exchanges(Calibration& c);  // calibrate_threads.cc
void measure_computing_together(Calibration& c);
void measure_processes(Calibration& c);  // calibrate_processes.cc
void measure_scheduler(Calibration& c);  // calibrate_scheduler.cc
void measure_drives(Calibration& c);     // calibrate_drives.cc
void measure_copies(Calibration& c);     // calibrate_gpu.cc
void measure_launches(Calibration& c);
void measure_nccl(Calibration& c);

// One product of each role, by its node's counts.
void perform_gemm(Kernels& kernels, GemmRole role, std::int64_t m, std::int64_t n, std::int64_t k,
                  RotatingMemory& cold, RotatingMemory& written, float* warm_in, float* warm_out);

}  // namespace rehearse::exec
