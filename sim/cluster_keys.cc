#include "sim/cluster_keys.h"

#include <array>

#include "schedules/plan_names.h"

namespace rehearse::sim {
namespace {

constexpr double kMost = 1e9;  // of any rate or size in its unit: far beyond what is built

constexpr KeySpec text(std::string_view name, std::string_view about = {}) {
  return {.name = name, .types = kString, .about = about};
}
constexpr KeySpec texts(std::string_view name) {
  return {.name = name, .types = kArray, .item_types = kString};
}
constexpr KeySpec flag(std::string_view name, std::string_view about = {}) {
  return {.name = name, .types = kBool, .about = about};
}
// More than 0.
constexpr KeySpec positive(std::string_view name, std::string_view about = {}) {
  return {.name = name,
          .types = kNumber,
          .min = 0,
          .max = kMost,
          .above_min = true,
          .sourced = true,
          .about = about};
}
constexpr KeySpec needed(KeySpec spec) {
  spec.required = true;
  return spec;
}
constexpr KeySpec from_zero(std::string_view name, std::string_view about = {}) {
  return {.name = name, .types = kNumber, .min = 0, .max = kMost, .sourced = true, .about = about};
}
constexpr KeySpec fraction(std::string_view name, std::string_view about = {}) {
  return {.name = name,
          .types = kNumber,
          .min = 0,
          .max = 1,
          .above_min = true,
          .sourced = true,
          .about = about};
}
constexpr KeySpec count(std::string_view name, double max = 65536, double min = 0) {
  return {.name = name, .types = kInteger, .min = min, .max = max, .sourced = true};
}
constexpr KeySpec object(std::string_view name, const KeyTable& table,
                         std::string_view about = {}) {
  return {.name = name, .types = kObject, .members = &table, .about = about};
}

constexpr std::array kPeakKeys{
    positive("fp32_vector"), positive("tf32"), positive("fp16"), positive("bf16"), positive("fp8"),
};
constexpr KeyTable kPeaks{.title = "peak_dense_tflops", .keys = kPeakKeys};

constexpr std::array kGpuCalibrationKeys{
    fraction("gemm_typical_fraction_of_peak"),
    fraction("gemm_best_fraction_of_peak"),
    fraction("memory_bandwidth_fraction"),
    from_zero("all_reduce_8_alpha_us"),
    positive("all_reduce_8_asymptotic_busbw_gb_per_s"),
    positive("all_reduce_8_busbw_gb_per_s"),
    positive("nvls_busbw_gb_per_s"),
    positive("ring_busbw_gb_per_s"),
    text("source"),
    texts("sources"),
    texts("assumed"),
};
constexpr KeyTable kGpuCalibration{.title = "gpu.calibration", .keys = kGpuCalibrationKeys};

constexpr std::array kGpuLinkKeys{
    count("generation", 100),
    count("links", 1024),
    positive("total_gb_per_s_per_direction"),
    positive("gb_per_s_per_direction_per_link"),
};
constexpr KeyTable kGpuLinks{.title = "nvlink", .keys = kGpuLinkKeys};
constexpr std::array kGpuPcieKeys{
    count("generation", 100),
    count("lanes", 1024),
    needed(positive("gb_per_s_per_direction")),
};
constexpr KeyTable kGpuPcie{.title = "gpu.pcie", .keys = kGpuPcieKeys};

constexpr std::array<std::string_view, 8> kArchitectures{"volta",  "turing",    "ampere", "ada",
                                                         "hopper", "blackwell", "cdna3",  "other"};

constexpr std::array kGpuKeys{
    text("name"),
    KeySpec{.name = "architecture", .types = kString, .choices = kArchitectures},
    count("compute_capability", 10000),
    needed(count("sm_count", 65536, 1)),
    positive("tensor_clock_mhz"),
    needed(object("peak_dense_tflops", kPeaks, "per type, without sparsity")),
    needed(positive("memory_capacity_gb", "the vendor's figure")),
    positive("usable_memory_gib", "what a program gets"),
    needed(positive("memory_bandwidth_gb_per_s")),
    positive("l2_cache_mib"),
    positive("tdp_w"),
    object("nvlink", kGpuLinks),
    object("xgmi", kGpuLinks),
    object("pcie", kGpuPcie),
    positive("c2c_to_cpu_gb_per_s_per_direction"),
    flag("peer_to_peer"),
    object("calibration", kGpuCalibration, "fractions of peak, read from measured tables"),
    text("nvlink_scope"),
    text("c2c_note"),
    text("note"),
    texts("sources"),
    texts("assumed"),
};
constexpr KeyTable kGpu{.title = "gpu", .keys = kGpuKeys};

constexpr std::array<std::string_view, 4> kScaleUpKinds{"nvswitch", "full_mesh", "hybrid_cube_mesh",
                                                        "pcie_tree"};
constexpr std::array kAchievableKeys{fraction("ranks_2"), fraction("ranks_4"), fraction("ranks_8")};
constexpr KeyTable kAchievable{.title = "all_reduce_achievable", .keys = kAchievableKeys};
constexpr std::array kScaleUpKeys{
    KeySpec{.name = "kind", .types = kString, .choices = kScaleUpKinds, .required = true},
    positive("gb_per_s_per_direction_per_gpu"),
    positive("gb_per_s_per_direction_per_pair"),
    positive("gb_per_s_per_direction_per_link"),
    count("switches"),
    count("links_per_pair"),
    count("trays"),
    count("gpus_per_tray"),
    from_zero("hop_latency_us"),
    flag("nvls_in_network_reduction", "the switch adds (NVLS)"),
    fraction("achievable_fraction", "share that collectives reach at large sizes"),
    object("all_reduce_achievable", kAchievable, "shares of reference_gb_per_s"),
    positive("reference_gb_per_s"),
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
    positive("gb_per_s_per_direction_per_link"),
    positive("gb_per_s_per_direction_per_cpu"),
    count("gpus_per_cpu"),
};
constexpr KeyTable kPcie{.title = "pcie", .keys = kPcieKeys};

constexpr std::array kNicKeys{
    needed(count("count")),
    positive("gbit_per_s_per_direction_each"),
    needed(positive("gb_per_s_per_direction_each")),
    text("kind"),
    from_zero("one_way_latency_us"),
    text("latency_note"),
    flag("gpu_direct_rdma"),
    positive("gpus_per_nic"),
};
constexpr KeyTable kNics{.title = "nics", .keys = kNicKeys};

constexpr std::array kHostKeys{
    count("sockets"),
    positive("memory_gib"),
    text("cpu"),
    positive("inter_socket_gb_per_s_per_direction"),
};
constexpr KeyTable kHost{.title = "host", .keys = kHostKeys};

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
    positive("port_gbit_per_s"),
    count("rails", 65536, 1),
    count("nodes_per_scalable_unit", 1 << 24, 1),
    count("pod_gpus", 1 << 24, 1),
    KeySpec{.name = "oversubscription_leaf_to_spine", .types = kNumber, .min = 1, .max = 1e6},
    KeySpec{.name = "oversubscription_aggregation_to_core", .types = kNumber, .min = 1, .max = 1e6},
    from_zero("switch_latency_us"),
    from_zero("cable_latency_us_per_hop"),
    from_zero("between_pods_latency_us", "one way, on top of the switches: pods that are apart"),
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
          .min = 0,
          .max = 1e12,
          .above_min = true,
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
    KeySpec{.name = "time_us", .types = kNumber, .min = 0, .max = 1e12, .above_min = true},
    KeySpec{.name = "fraction_of_peak", .types = kNumber, .min = 0, .max = 1.5, .above_min = true},
    text("note"),
};
constexpr KeyTable kGemm{.title = "gemm", .keys = kGemmKeys};

constexpr std::array<std::string_view, 2> kDirections{"forward", "backward"};
constexpr std::array<std::string_view, 17> kMemoryOps{
    "add",           "norm",      "rms_norm",      "activation", "swiglu",     "dropout",
    "softmax",       "rope",      "embedding",     "position",   "row_maxima", "row_sums",
    "cross_entropy", "optimizer", "gradient_norm", "clear",      "copy"};
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
    optional_count("batch"),
    elements("heads"),
    optional_count("kv_heads"),
    elements("sequence"),
    elements("head_dim"),
    time_key(),
    text("note"),
};
constexpr KeyTable kAttention{.title = "attention", .keys = kAttentionKeys};

constexpr std::array<std::string_view, 7> kCollectiveNames{
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send_recv"};
constexpr std::array<std::string_view, 2> kProcessLinks{"memory", "tcp"};
constexpr std::array kCollectiveKeys{
    KeySpec{.name = "op", .types = kString, .choices = kCollectiveNames, .required = true},
    KeySpec{.name = "ranks", .types = kInteger, .min = 2, .max = 1 << 24, .required = true},
    KeySpec{.name = "nodes", .types = kInteger, .min = 1, .max = 1 << 24},
    KeySpec{.name = "between_processes", .types = kString, .choices = kProcessLinks},
    bytes_key(),
    time_key(),
    text("note"),
};
constexpr KeyTable kCollectives{.title = "collectives", .keys = kCollectiveKeys};

constexpr std::array<std::string_view, 3> kCopyNames{"h2d", "d2h", "d2d"};
constexpr std::array kCopyKeys{
    KeySpec{.name = "direction", .types = kString, .choices = kCopyNames, .required = true},
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
    KeySpec{.name = "launch_us", .types = kNumber, .min = 0, .max = 1e6},
    object("scalars", kScalars, "numbers by name"),
    texts("sources"),
    texts("assumed"),
    text("note"),
};
constexpr KeyTable kCalibration{.title = "Calibration: measured tables of one machine",
                                .keys = kCalibrationKeys};

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
    from_zero("price_per_gpu_hour", "USD"),
    from_zero("price_usd_per_node_hour"),
    from_zero("failures_per_million_gpu_hours"),
    positive("checkpoint_gb_per_s"),
    positive("system_power_max_w"),
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
