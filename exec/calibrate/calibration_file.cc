// SPDX-License-Identifier: Apache-2.0
#include "exec/calibrate/calibration_file.h"

#include <algorithm>
#include <cmath>

#include "exec/calibrate/calibration_gpu.h"
#include "schedules/base/counted.h"
#include "schedules/base/json_document.h"

namespace rehearse::exec {
namespace {

// Three decimals: nanoseconds.
double rounded_us(double us) {
  return std::max(0.001, std::round(us * 1e3) / 1e3);
}
double rounded(double value) {
  return std::round(value * 1e4) / 1e4;
}

// cuBLAS' words (column-major): y = x w^T is TN, its input gradient NN, its weight gradient NT.
std::string_view layout_of(GemmRole role) {
  return role == GemmRole::WeightGradient ? "NT" : role == GemmRole::InputGradient ? "NN" : "TN";
}
std::string_view name_of(OpKind kind) {
  switch (kind) {
    case OpKind::AllReduce:
      return "all_reduce";
    case OpKind::AllGather:
      return "all_gather";
    case OpKind::ReduceScatter:
      return "reduce_scatter";
    case OpKind::AllToAll:
      return "all_to_all";
    case OpKind::Broadcast:
      return "broadcast";
    case OpKind::Reduce:
      return "reduce";
    default:
      return "send_recv";
  }
}

// A document with one point of a list per line.
std::string lines(const Json& document) {
  std::string text = "{";
  std::string_view between = "\n";
  for (const auto& [key, value] : document.members()) {
    text += std::string(between) + "  " + Json(key).dump() + ": ";
    between = ",\n";
    if (!value.is_array() || value.empty() || !value.items().front().is_object()) {
      text += value.dump();
      continue;
    }
    std::string_view next = "[\n";
    for (const Json& point : value.items()) {
      text += std::string(next) + "    " + point.dump();
      next = ",\n";
    }
    text += "\n  ]";
  }
  return text + "\n}\n";
}

std::string_view type_of(const MachineTables& t) {
  return t.type == ElementType::BFloat16 ? "bf16" : "fp32";
}

std::string origin(const MachineTables& t) {
  if (t.gpu) return t.gpu->name + ", " + t.gpu->versions + ", " + t.cpu + ", measured " + t.date;
  return t.cpu + ", " + counted(t.cores, "core") + ", " + t.instruction_set + ", measured " +
         t.date;
}

}  // namespace

std::string calibration_text(const MachineTables& t, const std::string& id,
                             const std::string& version) {
  Json out{{"schema", "calibration/1"}, {"id", id}, {"name", origin(t)}};
  out["sources"] =
      Json::array({"rehearse calibrate " + version + ", " + origin(t) + ", " +
                   std::to_string(std::llround(t.seconds)) +
                   " s; medians, half of the points spread by less than " +
                   std::to_string(std::llround(100 * t.noise)) + " % between quartiles"});
  Json points = Json::array();
  for (const auto* products : {&t.gemm, &t.grouped}) {
    for (const GemmTime& p : *products) {
      Json point{
          {"m", p.m}, {"n", p.n}, {"k", p.k}, {"type", type_of(t)}, {"layout", layout_of(p.role)}};
      if (p.batch > 1) point["batch"] = p.batch;
      if (p.role == GemmRole::WeightGradient) point["accumulate"] = true;
      point["time_us"] = rounded_us(p.us);
      points.push_back(std::move(point));
    }
  }
  out["gemm"] = std::exchange(points, Json::array());
  for (const KernelTime& p : t.kernels) {
    Json point{{"op", p.op}, {"bytes", p.bytes}, {"time_us", rounded_us(p.us)}};
    if (p.backward) point["direction"] = "backward";
    points.push_back(std::move(point));
  }
  out["memory_bound"] = std::exchange(points, Json::array());
  for (const AttentionTime& p : t.attention) {
    Json point{{"kernel", "flash2"},     {"direction", p.backward ? "backward" : "forward"},
               {"causal", p.causal},     {"batch", p.samples},
               {"heads", p.heads},       {"sequence", p.sequence},
               {"head_dim", p.head_dim}, {"time_us", rounded_us(p.us)}};
    if (p.causal && p.part) point["part"] = true;
    if (p.half) point["half"] = true;
    if (p.values() != p.head_dim) point["value_dim"] = p.values();
    points.push_back(std::move(point));
  }
  out["attention"] = std::exchange(points, Json::array());
  for (const ExchangeTime& p : t.exchanges) {
    Json point{{"op", name_of(p.kind)}, {"ranks", p.ranks}};
    if (p.way != ExchangeTime::Way::Process) {
      point["between_processes"] = p.way == ExchangeTime::Way::Memory ? "memory" : "tcp";
    }
    if (p.apart) point["apart"] = true;
    point["bytes"] = p.bytes;
    point["time_us"] = rounded_us(p.us);
    points.push_back(std::move(point));
  }
  out["collectives"] = std::exchange(points, Json::array());
  for (const CopyTime& p : t.copies) {
    Json point = Json::object();
    point["direction"] = p.to_host ? "d2h" : "h2d";
    if (p.drives) point["drives"] = true;
    point["bytes"] = p.bytes;
    point["time_us"] = rounded_us(p.us);
    points.push_back(std::move(point));
  }
  for (const KernelTime& p : t.kernels) {
    if (t.gpu || p.op != "copy") continue;  // on a CPU the host is the device
    for (const char* direction : {"h2d", "d2h"}) {
      points.push_back(
          {{"direction", direction}, {"bytes", p.bytes / 2}, {"time_us", rounded_us(p.us)}});
    }
  }
  out["copies"] = std::move(points);
  out["launch_us"] = rounded_us(t.gpu ? t.launch_us : t.op_us);
  Json& scalars = out["scalars"] = Json::object();
  scalars["scatter.product"] = rounded(t.product_scatter);
  if (t.gpu) {
    out["gpu"] = t.gpu->name;
    for (const auto& [name, value] : gpu_scalars(t)) out["scalars"][name] = rounded(value);
    return lines(out);
  }
  scalars["scatter.together"] = rounded(t.together_scatter);
  scalars["workers.matrix_products"] = rounded(t.products_together);
  scalars["workers.products_in_bf16"] = rounded(t.products_in_bf16);
  scalars["workers.attention"] = rounded(t.attention_together);
  scalars["workers.memory_bound"] = rounded(t.kernels_together);
  scalars["workers.meeting_us"] = rounded_us(t.meeting_us);
  scalars["workers.handover_us"] = rounded_us(t.handover_us);
  return lines(out);
}

std::string cluster_text(const MachineTables& t, const std::string& id,
                         const std::string& calibration) {
  if (t.gpu) return gpu_cluster_text(t, id, calibration);
  double flops = 1, bytes = 1, copied = 1;  // per second, the best of all points
  for (const GemmTime& p : t.gemm) {
    flops = std::max(flops, 2e6 * static_cast<double>(p.m * p.n * p.k) / p.us);
  }
  std::int64_t largest = 0;
  for (const KernelTime& p : t.kernels) largest = std::max(largest, p.bytes);
  for (const KernelTime& p : t.kernels) {
    const double rate = 1e6 * static_cast<double>(p.bytes) / p.us;
    if (2 * p.bytes > largest && p.op == "add") bytes = std::max(bytes, rate);  // beyond the caches
    if (2 * p.bytes > largest && p.op == "copy") copied = std::max(copied, rate / 2);
  }
  const double gib = static_cast<double>(t.memory_bytes) / t.cores / (1 << 30);
  const double gb_per_s = rounded(copied * 1e-9);
  const Json out{
      {"schema", "node/1"},
      {"id", id},
      {"name", t.cpu + " (" + counted(t.cores, "core") + ")"},
      {"gpus_per_node", t.cores},
      {"workers", t.cores},
      {"gpu",
       {{"name", t.cpu + ", one core"},
        {"architecture", "other"},
        {"sm_count", 1},
        {"peak_dense_tflops", {{"fp32_vector", flops * 1e-12}}},
        {"memory_capacity_gb", gib},
        {"usable_memory_gib", gib},
        {"memory_bandwidth_gb_per_s", rounded(bytes * 1e-9)},
        {"pcie", {{"gb_per_s_per_direction", gb_per_s}}}}},
      {"scale_up",
       {{"kind", "full_mesh"},
        {"gb_per_s_per_direction_per_gpu", gb_per_s},
        {"gb_per_s_per_direction_per_pair", gb_per_s}}},
      {"host", {{"cpu", t.cpu}, {"memory_gib", gib * t.cores}}},
      {"calibration", calibration},
      {"sources",
       Json::array({"rehearse calibrate: " + origin(t) +
                    ". A core stands as a GPU, with its part of the memory; ranks are threads and "
                    "share the cores (workers). Rates are the best that was measured."})}};
  return out.dump(2) + "\n";
}

}  // namespace rehearse::exec
