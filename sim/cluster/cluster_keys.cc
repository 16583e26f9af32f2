// SPDX-License-Identifier: Apache-2.0
#include "sim/cluster/cluster_keys.h"

#include <array>

#include "schedules/scenario/plan_names.h"
#include "sim/cluster/cluster.h"
#include "sim/cluster/correction.h"

namespace rehearse::sim {
namespace {

// What a number about hardware can mean, from far below to far above what is built: so that no time
// made of them leaves what the simulator can count (to_nanoseconds.h refuses what still does).
struct Range {
  double low = 0, high = 0;
};
constexpr Range kTflops{1e-6, 1e6};        // dense peak of one GPU; 1 MFLOP/s to 1 EFLOP/s
constexpr Range kGbPerS{1e-3, 1e6};        // memory, links, storage; 1 MB/s to 1 PB/s
constexpr Range kGbitPerS{1e-2, 1e7};      // the same of ports that are sold by the bit
constexpr Range kMicroseconds{0, 1e6};     // latencies; to a second
constexpr Range kMegahertz{1, 1e5};        // clocks
constexpr Range kGigabytes{1e-3, 1e6};     // memory of one GPU (GB or GiB); 1 MB to 1 PB
constexpr Range kHostGib{1e-3, 1e7};       // memory of a node
constexpr Range kNvmeGb{1, 1e8};           // drives of a node; up to 100 PB
constexpr Range kMib{1e-3, 1e5};           // caches
constexpr Range kWatts{1e-1, 1e5};         // of one GPU
constexpr Range kNodeWatts{1e-1, 1e7};     // of all that stands in a node or rack
constexpr Range kUsd{0, 1e6};              // of an hour
constexpr Range kFailures{0, 1e6};         // of a million hours
constexpr Range kShare{1e-3, 1};           // of a peak or a rate
constexpr Range kGpusPerNic{1e-3, 65536};  // below one: several NICs for one GPU
constexpr Range kOversubscription{1, 1e4};
constexpr Range kMeasuredUs{1e-4, 1e10};  // one measured kernel or collective; to three hours
constexpr Range kShareOfPeak{1e-7, 1.5};  // of one product, tiny ones and those beyond the sheet

constexpr KeySpec text(std::string_view name, std::string_view about = {}) {
  return {.name = name, .types = kString, .about = about};
}
constexpr KeySpec texts(std::string_view name) {
  return {.name = name, .types = kArray, .item_types = kString};
}
constexpr KeySpec flag(std::string_view name, std::string_view about = {}) {
  return {.name = name, .types = kBool, .about = about};
}
constexpr KeySpec number(std::string_view name, Range range, std::string_view about = {}) {
  return {.name = name,
          .types = kNumber,
          .min = range.low,
          .max = range.high,
          .sourced = true,
          .about = about};
}
constexpr KeySpec needed(KeySpec spec) {
  spec.required = true;
  return spec;
}
constexpr KeySpec count(std::string_view name, double max = 65536, double min = 0) {
  return {.name = name, .types = kInteger, .min = min, .max = max, .sourced = true};
}
constexpr KeySpec object(std::string_view name, const KeyTable& table,
                         std::string_view about = {}) {
  return {.name = name, .types = kObject, .members = &table, .about = about};
}

constexpr std::array kPeakKeys{
    number("fp32_vector", kTflops), number("tf32", kTflops), number("fp16", kTflops),
    number("bf16", kTflops),        number("fp8", kTflops),  number("nvfp4", kTflops),
};
constexpr KeyTable kPeaks{.title = "peak_dense_tflops", .keys = kPeakKeys};

constexpr std::array kGpuCalibrationKeys{
    number("gemm_typical_fraction_of_peak", kShare),
    number("gemm_best_fraction_of_peak", kShare),
    number("memory_bandwidth_fraction", kShare),
    number("all_reduce_8_alpha_us", kMicroseconds),
    number("all_reduce_8_asymptotic_busbw_gb_per_s", kGbPerS),
    number("all_reduce_8_busbw_gb_per_s", kGbPerS),
    number("nvls_busbw_gb_per_s", kGbPerS),
    number("ring_busbw_gb_per_s", kGbPerS),
    text("source"),
    texts("sources"),
    texts("assumed"),
};
constexpr KeyTable kGpuCalibration{.title = "gpu.calibration", .keys = kGpuCalibrationKeys};

constexpr std::array kGpuLinkKeys{
    count("generation", 100),
    count("links", 1024),
    number("total_gb_per_s_per_direction", kGbPerS),
    number("gb_per_s_per_direction_per_link", kGbPerS),
};
constexpr KeyTable kGpuLinks{.title = "nvlink", .keys = kGpuLinkKeys};
constexpr std::array kGpuPcieKeys{
    count("generation", 100),
    count("lanes", 1024),
    needed(number("gb_per_s_per_direction", kGbPerS)),
};
constexpr KeyTable kGpuPcie{.title = "gpu.pcie", .keys = kGpuPcieKeys};

constexpr std::array kGpuKeys{
    text("name"),
    text("vendor", "whose GPU: nvidia, amd, ...; which library its collectives are follows"),
    text("architecture", "a generation of kernels/generations.json, or other"),
    KeySpec{.name = "compute_capability",
            .types = kInteger,
            .min = 0,
            .max = 10000,
            .sourced = true,
            .about = "NVIDIA's (90 = 9.0); GPUs of others have none"},
    needed(count("sm_count", 65536, 1)),
    number("tensor_clock_mhz", kMegahertz),
    KeySpec{.name = "product_types",
            .types = kArray,
            .choices = kComputeTypeNames,
            .item_types = kString,
            .about = "types of the matrix products that it has"},
    needed(object("peak_dense_tflops", kPeaks, "per type, without sparsity")),
    needed(number("memory_capacity_gb", kGigabytes, "the vendor's figure")),
    number("usable_memory_gib", kGigabytes, "what a program gets"),
    needed(number("memory_bandwidth_gb_per_s", kGbPerS)),
    number("l2_cache_mib", kMib),
    number("tdp_w", kWatts),
    object("nvlink", kGpuLinks),
    object("xgmi", kGpuLinks),
    object("pcie", kGpuPcie),
    number("c2c_to_cpu_gb_per_s_per_direction", kGbPerS),
    flag("peer_to_peer"),
    object("calibration", kGpuCalibration, "fractions of peak, read from measured tables"),
    text("nvlink_scope"),
    text("c2c_note"),
    text("note"),
    texts("sources"),
    texts("assumed"),
};
constexpr KeyTable kGpu{.title = "gpu", .keys = kGpuKeys};

constexpr std::array kTorusAxisKeys{
    needed(count("size", 4096, 2)),
    needed(number("gb_per_s_per_direction_per_link", kGbPerS, "to one neighbour")),
    flag("open", "its ends are not joined"),
};
constexpr KeyTable kTorusAxis{.title = "axes", .keys = kTorusAxisKeys};
constexpr std::array kAchievableKeys{number("ranks_2", kShare), number("ranks_4", kShare),
                                     number("ranks_8", kShare)};
constexpr KeyTable kAchievable{.title = "all_reduce_achievable", .keys = kAchievableKeys};
constexpr std::array kScaleUpKeys{
    KeySpec{.name = "kind", .types = kString, .choices = kScaleUpNames, .required = true},
    KeySpec{.name = "axes",
            .types = kArray,
            .items = &kTorusAxis,
            .item_types = kObject,
            .about = "of a torus: GPUs are numbered along the first one first"},
    number("gb_per_s_per_direction_per_gpu", kGbPerS),
    number("gb_per_s_per_direction_per_pair", kGbPerS),
    number("gb_per_s_per_direction_per_link", kGbPerS),
    count("switches"),
    count("links_per_pair"),
    count("trays"),
    count("gpus_per_tray"),
    number("hop_latency_us", kMicroseconds),
    flag("nvls_in_network_reduction", "the switch adds (NVLS)"),
    number("achievable_fraction", kShare, "share that collectives reach at large sizes"),
    object("all_reduce_achievable", kAchievable, "shares of reference_gb_per_s"),
    number("reference_gb_per_s", kGbPerS),
    flag("blocking"),
    flag("peer_to_peer"),
    text("note"),
    text("note2"),
};
constexpr KeyTable kScaleUp{.title = "scale_up", .keys = kScaleUpKeys};

constexpr std::array<std::string_view, 2> kPcieKinds{"pcie", "nvlink_c2c"};
constexpr std::array kPcieKeys{
    KeySpec{.name = "kind", .types = kString, .choices = kPcieKinds},
    count("generation", 100),
    count("switches"),
    count("gpus_per_switch"),
    count("nics_per_switch"),
    number("gb_per_s_per_direction_per_link", kGbPerS),
    number("gb_per_s_per_direction_per_cpu", kGbPerS),
    count("gpus_per_cpu"),
};
constexpr KeyTable kPcie{.title = "pcie", .keys = kPcieKeys};

constexpr std::array kNicKeys{
    needed(count("count")),
    number("gbit_per_s_per_direction_each", kGbitPerS),
    needed(number("gb_per_s_per_direction_each", kGbPerS)),
    text("kind"),
    number("one_way_latency_us", kMicroseconds),
    text("latency_note"),
    flag("gpu_direct_rdma"),
    number("gpus_per_nic", kGpusPerNic),
    number(
        "one_group_fraction", kShare,
        "share of the line rate that one communicator of a node reaches, where several reach more"),
    flag("assumed", "nobody printed this network: predictions are less sure of it"),
};
constexpr KeyTable kNics{.title = "nics", .keys = kNicKeys};

constexpr std::array kHostKeys{
    count("sockets"),
    number("memory_gib", kHostGib),
    text("cpu"),
    number("inter_socket_gb_per_s_per_direction", kGbPerS),
};
constexpr KeyTable kHost{.title = "host", .keys = kHostKeys};

constexpr std::array kNvmeKeys{
    count("drives", 64),
    number("capacity_gb", kNvmeGb),
    number("read_gb_per_s", kGbPerS),
    number("write_gb_per_s", kGbPerS),
    text("source"),
};
constexpr KeyTable kNvme{.title = "nvme", .keys = kNvmeKeys};

constexpr std::array<std::string_view, 3> kTopologies{"fat_tree", "rail_optimized_fat_tree",
                                                      "three_level_clos"};
constexpr std::array<std::string_view, 1> kFabricSchema{"fabric/1"};
constexpr std::array kFabricKeys{
    KeySpec{.name = "schema", .types = kString, .choices = kFabricSchema},
    text("id"),
    text("name"),
    KeySpec{.name = "topology", .types = kString, .choices = kTopologies, .required = true},
    count("levels", 16, 1),
    count("leaf_ports", 65536, 1),
    number("port_gbit_per_s", kGbitPerS),
    count("rails", 65536, 1),
    count("nodes_per_scalable_unit", 1 << 24, 1),
    count("pod_gpus", 1 << 24, 1),
    number("oversubscription_leaf_to_spine", kOversubscription),
    number("oversubscription_aggregation_to_core", kOversubscription),
    number("switch_latency_us", kMicroseconds),
    number("cable_latency_us_per_hop", kMicroseconds),
    number("between_pods_latency_us", kMicroseconds,
           "one way, on top of the switches: pods that are apart"),
    texts("sources"),
    texts("assumed"),
    text("note"),
};
constexpr KeyTable kFabric{.title = "Fabric: the network between nodes", .keys = kFabricKeys};

constexpr KeySpec elements(std::string_view name) {
  return {.name = name, .types = kInteger, .min = 1, .max = 1LL << 40, .required = true};
}
constexpr KeySpec bytes_key() {
  return {.name = "bytes", .types = kInteger, .min = 1, .max = 1LL << 50, .required = true};
}
constexpr KeySpec time_key() {
  return {.name = "time_us",
          .types = kNumber,
          .min = kMeasuredUs.low,
          .max = kMeasuredUs.high,
          .required = true};
}
constexpr KeySpec optional_count(std::string_view name) {
  return {.name = name, .types = kInteger, .min = 1, .max = 1LL << 40};
}

constexpr std::array<std::string_view, 4> kLayouts{"TN", "NN", "NT", "TT"};
constexpr std::array kGemmKeys{
    elements("m"),
    elements("n"),
    elements("k"),
    optional_count("batch"),
    KeySpec{.name = "type", .types = kString, .choices = kComputeTypeNames},
    flag("accumulate", "into an fp32 output that is read first"),
    KeySpec{.name = "layout", .types = kString, .choices = kLayouts},
    KeySpec{.name = "time_us", .types = kNumber, .min = kMeasuredUs.low, .max = kMeasuredUs.high},
    KeySpec{.name = "fraction_of_peak",
            .types = kNumber,
            .min = kShareOfPeak.low,
            .max = kShareOfPeak.high},
    text("note"),
};
constexpr KeyTable kGemm{.title = "gemm", .keys = kGemmKeys};

constexpr std::array<std::string_view, 2> kDirections{"forward", "backward"};
constexpr std::array<std::string_view, 18> kMemoryOps{
    "add",           "norm",      "rms_norm",      "activation", "swiglu",     "dropout",
    "softmax",       "rope",      "embedding",     "position",   "row_maxima", "row_sums",
    "cross_entropy", "optimizer", "gradient_norm", "clear",      "copy",       "quantize"};
constexpr std::array kMemoryBoundKeys{
    KeySpec{.name = "op", .types = kString, .choices = kMemoryOps, .required = true},
    KeySpec{.name = "direction", .types = kString, .choices = kDirections},
    bytes_key(),
    time_key(),
    text("note"),
};
constexpr KeyTable kMemoryBound{.title = "memory_bound", .keys = kMemoryBoundKeys};

constexpr std::array kAttentionKeys{
    KeySpec{.name = "kernel", .types = kString, .choices = kAttentionKernelNames, .required = true},
    KeySpec{.name = "direction", .types = kString, .choices = kDirections, .required = true},
    flag("causal"),
    flag("part"),
    flag("half", "half of the queries or of the keys take part, the mean of both"),
    optional_count("batch"),
    elements("heads"),
    optional_count("kv_heads"),
    elements("sequence"),
    elements("head_dim"),
    optional_count("value_dim"),
    time_key(),
    text("note"),
};
constexpr KeyTable kAttention{.title = "attention", .keys = kAttentionKeys};

constexpr std::array<std::string_view, 2> kProcessLinks{"memory", "tcp"};
constexpr std::array kCollectiveKeys{
    KeySpec{.name = "op", .types = kString, .choices = kCollectiveNames, .required = true},
    KeySpec{.name = "ranks", .types = kInteger, .min = 2, .max = 1 << 24, .required = true},
    KeySpec{.name = "nodes", .types = kInteger, .min = 1, .max = 1 << 24},
    KeySpec{.name = "between_processes", .types = kString, .choices = kProcessLinks},
    flag("apart", "the sum lies beside what was summed, not over it"),
    bytes_key(),
    time_key(),
    text("note"),
};
constexpr KeyTable kCollectives{.title = "collectives", .keys = kCollectiveKeys};

constexpr std::array kCopyKeys{
    KeySpec{.name = "direction", .types = kString, .choices = kCopyNames, .required = true},
    flag("drives", "of a CPU: to the file of what is offloaded to drives, or from it"),
    bytes_key(),
    time_key(),
    text("note"),
};
constexpr KeyTable kCopies{.title = "copies", .keys = kCopyKeys};

constexpr KeyTable kScalars{.title = "scalars", .keys = {}, .open = true};

constexpr KeySpec points(std::string_view name, const KeyTable& table) {
  return {.name = name, .types = kArray, .items = &table, .item_types = kObject};
}
constexpr std::array<std::string_view, 1> kCalibrationSchema{"calibration/1"};
constexpr std::array kCalibrationKeys{
    KeySpec{.name = "schema", .types = kString, .choices = kCalibrationSchema},
    text("id"),
    text("name"),
    text("gpu"),
    points("gemm", kGemm),
    points("memory_bound", kMemoryBound),
    points("attention", kAttention),
    points("collectives", kCollectives),
    points("copies", kCopies),
    KeySpec{
        .name = "launch_us", .types = kNumber, .min = kMicroseconds.low, .max = kMicroseconds.high},
    object("scalars", kScalars, "numbers by name"),
    texts("sources"),
    texts("assumed"),
    text("note"),
};
constexpr KeyTable kCalibration{.title = "Calibration: measured tables of one machine",
                                .keys = kCalibrationKeys};

constexpr Range kFactor{0.01, 100};  // of a measured time over a predicted one
constexpr std::array kCorrectionKeys = [] {
  std::array<KeySpec, kCorrections.size() + 1> keys;
  for (std::size_t i = 0; i < kCorrections.size(); ++i) {
    keys[i] = number(kCorrections[i].name, kFactor, kCorrections[i].about);
  }
  keys.back() = text("source", "the step that was measured");
  return keys;
}();
constexpr KeyTable kCorrection{.title = "correction", .keys = kCorrectionKeys};

constexpr std::array<std::string_view, 1> kNodeSchema{"node/1"};
constexpr std::array kClusterKeys{
    KeySpec{.name = "$schema", .types = kString, .about = "for editors"},
    KeySpec{.name = "schema", .types = kString, .choices = kNodeSchema},
    text("id"),
    text("name"),
    text("gpu_id"),
    needed(object("gpu", kGpu)),
    needed(count("gpus_per_node", 65536, 1)),
    KeySpec{.name = "workers",
            .types = kInteger,
            .min = 1,
            .max = 65536,
            .about = "a CPU: threads that perform the ops of all ranks, however many these are"},
    needed(object("scale_up", kScaleUp, "links between the GPUs of a node")),
    object("pcie", kPcie),
    object("host", kHost),
    object("nvme", kNvme, "local drives of a node, all together; left out: not known"),
    object("nics", kNics, "null or left out: one node, no network"),
    text("fabric_id", "a shipped fabric"),
    KeySpec{.name = "fabric",
            .types = kString | kObject,
            .members = &kFabric,
            .about = "path or object; neither it nor fabric_id: full bisection"},
    KeySpec{.name = "calibration",
            .types = kString | kObject,
            .members = &kCalibration,
            .about = "measured tables: path or object"},
    object("correction", kCorrection,
           "factors on predicted times, from a measured step of this very cluster"),
    number("price_per_gpu_hour", kUsd, "USD"),
    number("price_usd_per_node_hour", kUsd),
    number("failures_per_million_gpu_hours", kFailures),
    number("checkpoint_gb_per_s", kGbPerS),
    number("system_power_max_w", kNodeWatts),
    texts("sources"),
    texts("assumed"),
    text("note"),
};
constexpr KeyTable kCluster{.title = "Cluster: one node type, its links and its network",
                            .keys = kClusterKeys};

}  // namespace

const KeyTable& cluster_key_table() {
  return kCluster;
}
const KeyTable& fabric_key_table() {
  return kFabric;
}
const KeyTable& calibration_key_table() {
  return kCalibration;
}

}  // namespace rehearse::sim
