// SPDX-License-Identifier: Apache-2.0
#include "exec/calibrate/calibration_gpu.h"

#include <algorithm>
#include <cmath>

#include "exec/calibrate/measure.h"
#include "schedules/base/json_document.h"
#include "schedules/scenario/generations.h"

namespace rehearse::exec {
namespace {

double rate(const GemmTime& p) {  // FLOP/s
  return 2e6 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) /
         p.us;
}
double rate(const KernelTime& p) {  // B/s
  return 1e6 * static_cast<double>(p.bytes) / p.us;
}
// The causal whole: products of half a square as wide as keys and as values, forward one of each,
// backward three and two.
double rate(const AttentionTime& p) {
  const double square = static_cast<double>(p.sequence) * static_cast<double>(p.sequence);
  const std::int64_t wide = p.backward ? 3 * p.head_dim + 2 * p.values() : p.head_dim + p.values();
  return 1e6 * static_cast<double>(p.samples * p.heads * wide) * square / p.us;
}

double best_product(const MachineTables& t) {
  double best = 1;
  for (const GemmTime& p : t.gemm) best = std::max(best, rate(p));
  return best;
}

// The speed of a class at its largest size, which lies beyond the caches.
double at_largest(const MachineTables& t, std::string_view op, bool backward = false) {
  const KernelTime* largest = nullptr;
  for (const KernelTime& p : t.kernels) {
    if (p.op != op || p.backward != backward) continue;
    if (largest == nullptr || p.bytes > largest->bytes) largest = &p;
  }
  return largest == nullptr ? 0 : rate(*largest);
}

// Bytes per second that any kernel reaches.
double bandwidth(const MachineTables& t) {
  double best = 1;
  for (const KernelTime& p : t.kernels) best = std::max(best, at_largest(t, p.op, p.backward));
  return best;
}

// The speed of copies and of what the largest group sent, by the largest array: B/s and direction.
double copied(const MachineTables& t) {
  double best = 1;
  for (const CopyTime& p : t.copies)
    best = std::max(best, 1e6 * static_cast<double>(p.bytes) / p.us);
  return best;
}
double bus(const MachineTables& t) {  // all_reduce moves 2 (n - 1) / n of the array per rank
  double best = 0;
  for (const ExchangeTime& p : t.exchanges) {
    if (p.kind != OpKind::AllReduce) continue;
    const double share = 2.0 * (p.ranks - 1) / p.ranks;
    best = std::max(best, 1e6 * share * static_cast<double>(p.bytes) / p.us);
  }
  return best;
}

// The generation of a compute capability; a machine without the shipped files has "other".
std::string architecture_of(std::int32_t capability) {
  const Result<std::vector<GpuGeneration>> all = shipped_generations();
  const GpuGeneration* row = all ? generation_of(all.value(), capability) : nullptr;
  return row == nullptr ? "other" : row->architecture;
}

}  // namespace

std::vector<std::pair<std::string, double>> gpu_scalars(const MachineTables& t) {
  const double peak = best_product(t), memory = bandwidth(t);
  std::vector<std::pair<std::string, double>> out;
  const auto share = [&](const std::string& name, double part, double whole) {
    if (part > 0) out.emplace_back(name, std::clamp(part / whole, 0.001, 1.0));
  };
  // Large products, half of which are faster: what a whole step sustains.
  double most = 0;
  for (const GemmTime& p : t.gemm) most = std::max(most, rate(p) * p.us);
  std::vector<double> large;
  for (const GemmTime& p : t.gemm) {
    if (16 * rate(p) * p.us >= most) large.push_back(rate(p));
  }
  if (!large.empty()) share("matrix_products.sustained_fraction", quantile(large, 0.5), peak);
  for (const auto& [name, op] : {std::pair{"elementwise", "add"},
                                 {"activation", "activation"},
                                 {"norm", "norm"},
                                 {"rope", "rope"},
                                 {"cross_entropy", "cross_entropy"},
                                 {"optimizer", "optimizer"}}) {
    share(std::string("memory.") + name, at_largest(t, op), memory);
  }
  for (const bool backward : {false, true}) {
    double best = 0;
    for (const AttentionTime& p : t.attention) {
      if (p.backward == backward && !p.part) best = std::max(best, rate(p));
    }
    share(std::string("attention.flash2.") + (backward ? "backward" : "forward"), best, peak);
  }
  if (t.beside_collective) {
    out.emplace_back("overlap.data_parallel_slowdown", std::min(*t.beside_collective, 0.99));
  }
  if (t.gpu->sm_clock_mhz > 0) out.emplace_back("device.sm_clock_mhz", t.gpu->sm_clock_mhz);
  if (t.gpu->memory_clock_mhz > 0) {
    out.emplace_back("device.memory_clock_mhz", t.gpu->memory_clock_mhz);
  }
  out.emplace_back("device.context_bytes", static_cast<double>(t.gpu->context_bytes));
  if (t.gpu->communicator_bytes > 0) {
    out.emplace_back("device.communicator_bytes", static_cast<double>(t.gpu->communicator_bytes));
  }
  return out;
}

std::string gpu_cluster_text(const MachineTables& t, const std::string& id,
                             const std::string& calibration) {
  const GpuFacts& gpu = *t.gpu;
  const auto tera = [](double value) { return std::round(value * 1e-10) / 100; };
  const auto giga = [](double value) { return std::max(0.001, std::round(value * 1e-6) / 1000); };
  std::int32_t gpus = 1;
  for (const ExchangeTime& p : t.exchanges) gpus = std::max(gpus, p.ranks);
  const char* type = t.type == ElementType::BFloat16 ? "bf16" : "fp32_vector";
  const double link = bus(t) > 0 ? bus(t) : copied(t);
  Json out{
      {"schema", "node/1"},
      {"id", id},
      {"name", std::to_string(gpus) + " x " + gpu.name},
      {"gpus_per_node", gpus},
      {"gpu",
       {{"name", gpu.name},
        {"vendor", "nvidia"},
        {"architecture", architecture_of(gpu.capability)},
        {"compute_capability", gpu.capability},
        {"sm_count", gpu.sm_count},
        {"peak_dense_tflops", {{type, std::max(1e-6, tera(best_product(t)))}}},
        {"memory_capacity_gb", giga(static_cast<double>(gpu.memory_bytes))},
        {"usable_memory_gib",
         static_cast<double>(gpu.memory_bytes - gpu.context_bytes) / (1 << 30)},
        {"memory_bandwidth_gb_per_s", giga(bandwidth(t))},
        {"pcie", {{"gb_per_s_per_direction", giga(copied(t))}}}}},
      {"scale_up",
       {{"kind", "full_mesh"},
        {"gb_per_s_per_direction_per_gpu", giga(link)},
        {"gb_per_s_per_direction_per_pair", giga(link)}}},
      {"calibration", calibration},
      {"sources", Json::array({"rehearse calibrate --device cuda, " + gpu.versions + ", " + t.date +
                               ": rates are the best that was measured, not a data sheet's"})}};
  // What a device does not tell is left out.
  if (gpu.sm_clock_mhz > 0) out["gpu"]["tensor_clock_mhz"] = gpu.sm_clock_mhz;
  if (gpu.l2_bytes > 0) {
    out["gpu"]["l2_cache_mib"] = static_cast<double>(gpu.l2_bytes) / (1 << 20);
  }
  return out.dump(2) + "\n";
}

}  // namespace rehearse::exec
