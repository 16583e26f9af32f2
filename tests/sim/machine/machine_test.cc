// SPDX-License-Identifier: Apache-2.0
// What machines say of themselves, read: published outputs (tests/data/machines), broken ones, and
// the cluster files made of them.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "sim/cluster/cluster.h"
#include "sim/machine/cluster_file.h"
#include "sim/machine/names.h"
#include "sim/machine/nccl_topology.h"
#include "sim/machine/topology_matrix.h"
#include "sim/machine/xml.h"

namespace rehearse::sim {
namespace {

using nlohmann::json;

std::string sample(const std::string& name) {
  std::ifstream in("tests/data/machines/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <class T>
T read(const Result<T>& result) {
  EXPECT_TRUE(result) << (result ? "" : result.error().message);
  return result ? result.value() : T{};
}

template <class T>
void refuses(const Result<T>& result, const std::string& what) {
  ASSERT_FALSE(result) << what;
  const std::string& said = result.error().message;
  EXPECT_NE(said.find(what), std::string::npos) << said;
  EXPECT_EQ(said.find('\n'), std::string::npos) << said;
}

NodeTopology matrix_of(const std::string& name) {
  return read(read_topology_matrix(sample(name), name));
}
NodeTopology nccl_of(const std::string& name) {
  return read(read_nccl_topology(sample(name), name));
}

json file_of(const MachineReport& machine, ClusterFile* file = nullptr) {
  const Result<ClusterFile> made = make_cluster_file(machine, "made");
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  if (!made) return {};
  if (file != nullptr) *file = made.value();
  return json::parse(made.value().text);
}

// --- XML

TEST(Xml, ReadsElementsAndAttributes) {
  const XmlElement root =
      read(parse_xml("<?xml version=\"1.0\"?>\n<!-- a note -->\n<a x=\"1\" y='&lt;2&amp;'>\n "
                     "<b/><b z=\"\"></b></a>\n",
                     "x.xml"));
  EXPECT_EQ(root.name, "a");
  EXPECT_EQ(root.line, 3);
  EXPECT_EQ(root.attribute("x"), "1");
  EXPECT_EQ(root.attribute("y"), "<2&");
  EXPECT_EQ(root.attribute("absent"), "");
  ASSERT_EQ(root.children.size(), 2u);
  EXPECT_EQ(root.children[0].line, 4);
}

TEST(Xml, RefusesWhatNcclDoesNotWrite) {
  const auto parse = [](const std::string& text) { return parse_xml(text, "x.xml"); };
  refuses(parse(""), "x.xml:1: has no element");
  refuses(parse("<a>\n<b>\n</a>"), "x.xml:3: </a> where </b> belongs");
  refuses(parse("<a>"), "<a> of line 1 is not closed");
  refuses(parse("<a x=1/>"), "needs quotes");
  refuses(parse("<a x=\"1/>"), "not closed");
  refuses(parse("<a x=\"1\" x=\"2\"/>"), "x stands twice");
  refuses(parse("<a>text</a>"), "text between elements");
  refuses(parse("<a/><b/>"), "a second element");
  refuses(parse("<!DOCTYPE a [<!ENTITY b \"c\">]><a/>"), "a document type");
  refuses(parse("<a x=\"&b;\"/>"), "an entity");
  refuses(parse("<!-- <a/>"), "a comment is not closed");
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "<a>";
  refuses(parse(deep), "too deep");
}

// --- nvidia-smi topo -m

TEST(Matrix, SeesLinksAndNumaNodes) {
  const NodeTopology node = matrix_of("h100-8.txt");
  EXPECT_EQ(node.gpus, 8);
  for (std::int32_t a = 0; a < 8; ++a) {
    for (std::int32_t b = 0; b < 8; ++b) EXPECT_EQ(node.links_between(a, b), a == b ? 0 : 18);
  }
  EXPECT_EQ(node.numa, (std::vector<std::int32_t>{0, 1}));
  EXPECT_TRUE(node.nics.empty());
  EXPECT_TRUE(node.gpu_names.empty());
}

TEST(Matrix, SeesNamesAndWhichNicsShareASwitch) {
  const NodeTopology node = matrix_of("a100-2-of-8.txt");
  EXPECT_EQ(node.gpus, 2);
  EXPECT_EQ(node.gpu_names, std::vector<std::string>{"NVIDIA A100-SXM4-80GB"});
  EXPECT_EQ(node.links_between(0, 1), 12);
  EXPECT_EQ(node.pcie_switches, 1);  // both GPUs reach NIC2 by PXB
  ASSERT_EQ(node.nics.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(node.nics[i].pcie_switch, i == 2 ? 0 : -1) << i;
}

TEST(Matrix, ReadsTheTableOfNvidiaSmi) {
  const NodeTopology node = matrix_of("rtx-6000-ada-4.txt");
  EXPECT_EQ(node.gpus, 4);
  EXPECT_EQ(node.gpu_names, std::vector<std::string>{"NVIDIA RTX 6000 Ada Gene..."});
  ASSERT_EQ(node.nics.size(), 4u);
  EXPECT_EQ(node.nics[3].name, "mlx5_3");
  EXPECT_EQ(node.pcie_switches, 0);
}

TEST(Matrix, PassesOverColours) {
  const NodeTopology node =
      read(read_topology_matrix("\t\x1b[4mGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\x1b[0m\nGPU0\t X "
                                "\tNV4\t0-3\t0\nGPU1\tNV4\t X \t4-7\t1\n",
                                "m"));
  EXPECT_EQ(node.links_between(1, 0), 4);
}

TEST(Matrix, RefusesWhatIsBroken) {
  const auto parse = [](const std::string& text) { return read_topology_matrix(text, "m.txt"); };
  refuses(parse("nothing here\n"), "m.txt: neither the matrix");
  refuses(parse("GPU0 GPU1 CPU Affinity\nGPU0 X\n"), "m.txt:2: GPU0 has 1 of 2 columns");
  refuses(parse("GPU0 GPU1 CPU Affinity\nGPU0 X NV1 0-3\n"),
          "m.txt:1: GPU1 has a column and no row");
  refuses(parse("GPU0 GPU1 CPU Affinity\nGPU0 X NV1\nGPU1 NV2 X\n"),
          "GPU1 reaches GPU0 in another way");
  refuses(parse("GPU0 GPU1 CPU Affinity\nGPU0 X FAR\nGPU1 FAR X\n"), "\"FAR\" is no connection");
  refuses(parse("GPU0 GPU1 CPU Affinity\nGPU0 NV1 X\nGPU1 X NV1\n"), "is not X to itself");
  refuses(parse("GPU0 GPU1 CPU Affinity\nGPU0 X SYS\nGPU0 X SYS\n"), "GPU0 has two rows");
}

// --- NCCL

TEST(NcclTopology, SeesSwitchesNicsAndThePciDevice) {
  const NodeTopology node = nccl_of("simai-8-a100.xml");
  EXPECT_EQ(node.gpus, 8);
  EXPECT_EQ(node.gpu_pci_device, "0x20b2");
  EXPECT_EQ(node.compute_capability, 80);
  EXPECT_EQ(node.to_switch, std::vector<std::int32_t>(8, 12));  // six switches, two links each
  EXPECT_EQ(node.pcie_switches, 4);
  EXPECT_EQ(node.pcie_switch, (std::vector<std::int32_t>{0, 0, 1, 1, 2, 2, 3, 3}));
  ASSERT_EQ(node.nics.size(), 5u);
  EXPECT_EQ(node.nics[0].pcie_switch, -1);
  EXPECT_EQ(node.nics[4].pcie_switch, 3);
  EXPECT_EQ(node.nics[4].gbit_per_s, 200);
  EXPECT_EQ(node.nics[4].infiniband, false);
  EXPECT_EQ(node.nics[4].gpu_direct, true);
}

TEST(NcclTopology, SeesAMeshOfXgmi) {
  const NodeTopology node = nccl_of("rccl-8-mi300x.xml");
  EXPECT_EQ(node.gpus, 8);
  EXPECT_EQ(node.gpu_pci_device, "0x74a1");
  EXPECT_FALSE(node.compute_capability);  // AMD's `sm` counts compute units
  for (std::int32_t a = 0; a < 8; ++a) {
    for (std::int32_t b = 0; b < 8; ++b) EXPECT_EQ(node.links_between(a, b), a == b ? 0 : 1);
  }
  EXPECT_EQ(node.nics.size(), 8u);
}

TEST(NcclTopology, ATemplateSaysNothingOfLinks) {
  const NodeTopology node = nccl_of("azure-ndv5.xml");
  EXPECT_EQ(node.gpus, 8);
  EXPECT_EQ(node.nics.size(), 8u);
  EXPECT_TRUE(node.links.empty());
  EXPECT_TRUE(node.to_switch.empty());
  EXPECT_EQ(node.nics[0].infiniband, true);
  EXPECT_FALSE(node.nics[0].gbit_per_s);
}

TEST(NcclTopology, RefusesOtherXml) {
  refuses(read_nccl_topology("<topology version=\"2.0\"/>", "t.xml"),
          "t.xml:1: begins with <topology>");
  refuses(read_nccl_topology("<system version=\"1\"><cpu/></system>", "t.xml"),
          "no GPU stands in it");
  std::string two = sample("simai-8-a100.xml");
  two.replace(two.rfind("0x20b2"), 6, "0x20b0");
  refuses(read_nccl_topology(two, "t.xml"), "a cluster has one kind");
  std::string none = sample("simai-8-a100.xml");
  none.replace(none.find("count=\"2\""), 9, "count=\"x\"");
  refuses(read_nccl_topology(none, "t.xml"), "has no count of links");
}

// --- nccl-tests

TEST(NcclTests, ReadsAnAllReduceOnTwoNodes) {
  const NcclTestsLog log = read(read_nccl_tests_log(sample("gcp-a3-mega-all-reduce.txt"), "log"));
  EXPECT_EQ(log.gpus_per_node, 8);
  EXPECT_EQ(log.gpu_names, std::vector<std::string>{"NVIDIA H100 80GB HBM3"});
  ASSERT_FALSE(log.points.empty());
  EXPECT_EQ(log.points[0].op, CollectiveOp::AllReduce);
  EXPECT_EQ(log.points[0].ranks, 16);
  EXPECT_EQ(log.points[0].nodes, 2);
  EXPECT_EQ(log.points[0].bytes, 8);
  EXPECT_EQ(log.points[0].time_us, 135.8);
  ASSERT_EQ(log.points.size(), 31u);  // 8 B to 8 GiB
  EXPECT_EQ(log.points[30].bytes, std::int64_t{8} << 30);
  EXPECT_EQ(log.points[30].time_us, 47535);
}

std::string log_of(const std::string& command, const std::string& rows, int ranks = 4) {
  std::string text = command + "\n# Using devices\n";
  for (int i = 0; i < ranks; ++i) {
    text += "#  Rank  " + std::to_string(i) + " Group  0 Pid 1 on node-1 device  " +
            std::to_string(i) + " [0x0f] NVIDIA A100-SXM4-80GB\n";
  }
  return text +
         "#\n#       size         count      type   redop    root     time   algbw   busbw "
         "#wrong\n" +
         rows;
}

TEST(NcclTests, ATableIsWhatItsBusBandwidthSays) {
  // 4 ranks: an all-reduce's bus bandwidth is 1.5 of the algorithm's, an all-gather's 0.75.
  const std::string twice = "1073741824 1 float sum -1 10000 107.37 161.06 0\n";
  const std::string part = "1073741824 1 float none -1 10000 107.37 80.53 0\n";
  const auto op = [](const std::string& text) {
    return read(read_nccl_tests_log(text, "l")).points.at(0).op;
  };
  EXPECT_EQ(op(log_of("./all_gather_perf -b 1G", part)), CollectiveOp::AllGather);
  EXPECT_EQ(op(log_of("# Collective test starting: alltoall_perf", part)), CollectiveOp::AllToAll);
  EXPECT_EQ(op(log_of("", "8 2 float sum -1 30 0.00 0.00 0\n" + twice)), CollectiveOp::AllReduce);
  refuses(read_nccl_tests_log(log_of("", part), "l"), "which collective this is nobody says");
  refuses(read_nccl_tests_log(log_of("./all_reduce_perf", part), "l"),
          "is not that of all_reduce among 4 ranks");
  // A line of a rank is lost: 15 ranks would have 1.867, the table has 1.875.
  std::string lost = sample("gcp-a3-mega-all-reduce.txt");
  lost.erase(lost.find("#  Rank  3"), 3);
  refuses(read_nccl_tests_log(lost, "l"), "among 15 ranks");
}

TEST(NcclTests, RefusesWhatIsBroken) {
  refuses(read_nccl_tests_log("no table\n", "l"), "l: no table of nccl-tests");
  refuses(read_nccl_tests_log(
              log_of("./all_reduce_perf", "1048576 1 float sum -1 10 1.0 1.5 0\n", 0), "l"),
          "how many GPUs took part?");
  refuses(read_nccl_tests_log(log_of("./all_reduce_perf", "1048576 1 float sum -1\n"), "l"),
          "l:9: a row without size, time, algbw and busbw");
}

// --- The file

TEST(ClusterFile, OfNcclsTopologyIsWhole) {
  ClusterFile made;
  const json file = file_of({.nccl = nccl_of("simai-8-a100.xml"), .sources = {"a"}}, &made);
  EXPECT_EQ(made.gpu_from, "dgx-a100-80gb");
  EXPECT_EQ(made.missing, "");
  EXPECT_EQ(file["gpu"]["name"], "A100-SXM4-80GB");
  EXPECT_EQ(file["gpu"]["pcie"]["gb_per_s_per_direction"], 31.5);
  EXPECT_EQ(file["gpus_per_node"], 8);
  EXPECT_EQ(file["scale_up"]["kind"], "nvswitch");
  EXPECT_EQ(file["scale_up"]["gb_per_s_per_direction_per_gpu"], 300);
  EXPECT_EQ(file["nics"]["count"], 4);  // the fifth shares no switch with a GPU
  EXPECT_EQ(file["nics"]["gb_per_s_per_direction_each"], 25);
  EXPECT_EQ(file["nics"]["kind"], "roce_cx6");
  EXPECT_EQ(file["pcie"]["gpus_per_switch"], 2);
  EXPECT_EQ(file["pcie"]["nics_per_switch"], 1);
  EXPECT_EQ(file["host"]["sockets"], 2);
  for (const char* key : {"nics.one_way_latency_us", "price_per_gpu_hour", "host.memory_gib"}) {
    EXPECT_NE(std::ranges::find(made.unknown, key), made.unknown.end()) << key;
  }
  for (const std::string& key : made.unknown) {
    std::string path = "/" + key;
    std::ranges::replace(path, '.', '/');
    EXPECT_TRUE(file.at(json::json_pointer(path)).is_null()) << key;
  }
}

TEST(ClusterFile, OfAMeshHasItsPairs) {
  ClusterFile made;
  const json file = file_of({.nccl = nccl_of("rccl-8-mi300x.xml")}, &made);
  EXPECT_EQ(made.missing, "");
  EXPECT_EQ(made.gpu_from, "mi300x-8");
  EXPECT_EQ(file["scale_up"]["kind"], "full_mesh");
  EXPECT_EQ(file["scale_up"]["gb_per_s_per_direction_per_gpu"], 448);
  EXPECT_EQ(file["scale_up"]["gb_per_s_per_direction_per_pair"], 64);
  EXPECT_EQ(file["nics"]["kind"], "infiniband_ndr_cx7");
}

// A matrix alone has links, the log the GPU's name: together they are a cluster of one node.
TEST(ClusterFile, OfAMatrixAndALogIsWhole) {
  ClusterFile made;
  const json file =
      file_of({.matrix = matrix_of("h100-8.txt"),
               .logs = {read(read_nccl_tests_log(sample("gcp-a3-mega-all-reduce.txt"), "log"))}},
              &made);
  EXPECT_EQ(made.missing, "");
  EXPECT_EQ(file["scale_up"]["kind"],
            "nvswitch");  // 18 links to each of seven are more than it has
  EXPECT_EQ(file["scale_up"]["gb_per_s_per_direction_per_gpu"], 450);
  EXPECT_TRUE(file["nics"].is_null());
  const json& points = file["calibration"]["collectives"];
  ASSERT_EQ(points.size(), 31u);
  EXPECT_EQ(points[0],
            json::parse(
                R"({"op": "all_reduce", "ranks": 16, "nodes": 2, "bytes": 8, "time_us": 135.8})"));
  const Result<Cluster> cluster = read_cluster({.path = "made", .inline_json = made.text});
  ASSERT_TRUE(cluster) << cluster.error().message;
  EXPECT_EQ(cluster.value().calibration->collectives.size(), 31u);
}

// NVIDIA's DGX-1: 0-1-2-3 and 4-5-6-7 are joined in full, each GPU with one of the other half.
TEST(ClusterFile, KnowsTheHybridCubeMesh) {
  NodeTopology node{.gpus = 8, .gpu_names = {"Tesla V100-SXM2-32GB"}};
  node.links.assign(64, 0);
  const auto join = [&](std::size_t a, std::size_t b, std::int32_t n) {
    node.links[a * 8 + b] = node.links[b * 8 + a] = n;
  };
  for (const std::size_t half : {std::size_t{0}, std::size_t{4}}) {
    join(half, half + 1, 1), join(half, half + 2, 1), join(half, half + 3, 2);
    join(half + 1, half + 2, 2), join(half + 1, half + 3, 1), join(half + 2, half + 3, 2);
  }
  join(0, 4, 2), join(1, 5, 2), join(2, 6, 1), join(3, 7, 1);
  ClusterFile made;
  const json file = file_of({.matrix = node}, &made);
  EXPECT_EQ(file["scale_up"]["kind"], "hybrid_cube_mesh");
  EXPECT_EQ(file["scale_up"]["gb_per_s_per_direction_per_link"], 25);
  EXPECT_EQ(made.missing, "");
}

TEST(ClusterFile, BridgesBetweenSomePairsAreNoKindOfNode) {
  NodeTopology node{.gpus = 4, .gpu_names = {"NVIDIA A100 80GB PCIe"}};
  node.links.assign(16, 0);
  node.links[1] = node.links[4] = node.links[11] = node.links[14] = 12;
  ClusterFile made;
  const json file = file_of({.matrix = node}, &made);
  EXPECT_EQ(file["scale_up"]["kind"], "pcie_tree");
  ASSERT_FALSE(made.notes.empty());
  EXPECT_NE(made.notes[0].find("some pairs"), std::string::npos) << made.notes[0];
}

TEST(ClusterFile, OfAnUnknownGpuLeavesItNull) {
  ClusterFile made;
  const json file = file_of({.matrix = matrix_of("rtx-6000-ada-4.txt")}, &made);
  EXPECT_EQ(made.gpu_from, "");
  EXPECT_TRUE(file["gpu"]["sm_count"].is_null());
  EXPECT_NE(made.missing.find("gpu.sm_count: is required"), std::string::npos) << made.missing;
  EXPECT_NE(made.notes.at(0).find("is none of the shipped ones"), std::string::npos);
}

TEST(ClusterFile, RefusesSourcesThatContradictEachOther) {
  refuses(
      make_cluster_file(
          {.matrix = matrix_of("rtx-6000-ada-4.txt"), .nccl = nccl_of("simai-8-a100.xml")}, "x"),
      "nvidia-smi shows 4 GPUs and NCCL 8");
  refuses(make_cluster_file(
              {.matrix = matrix_of("a100-2-of-8.txt"),
               .logs = {read(read_nccl_tests_log(sample("gcp-a3-mega-all-reduce.txt"), "log"))}},
              "x"),
          "two kinds of GPU");
}

// Every row of names.json stands for a shipped cluster, and no name for two.
TEST(MachineNames, AreThoseOfShippedClusters) {
  const MachineNames names = read(shipped_machine_names());
  std::set<std::string> all;
  for (const GpuNames& row : names.gpus) {
    const Result<Cluster> cluster =
        read_cluster({.path = "scenarios/clusters/" + row.cluster + ".json"});
    ASSERT_TRUE(cluster) << row.cluster;
    for (const std::string& name : row.names) {
      EXPECT_TRUE(all.insert(name).second) << name;
      EXPECT_EQ(names.gpu(name, ""), &row);
    }
    for (const std::string& device : row.pci_devices) {
      EXPECT_TRUE(all.insert(device).second) << device;
      EXPECT_EQ(names.gpu("", device), &row);
    }
  }
  EXPECT_EQ(names.gpu("NVIDIA GeForce RTX 40...", ""), names.gpu("NVIDIA GeForce RTX 4090", ""));
  EXPECT_EQ(names.gpu("NVIDIA A100...", ""), nullptr);  // several
}

// Anything in a file ends in a value or in one line.
TEST(Machine, SurvivesBrokenFiles) {
  std::mt19937 random(1);
  for (const char* name : {"simai-8-a100.xml", "rccl-8-mi300x.xml", "azure-ndv5.xml", "h100-8.txt",
                           "a100-2-of-8.txt", "rtx-6000-ada-4.txt", "gcp-a3-mega-all-reduce.txt"}) {
    const std::string whole = sample(name);
    ASSERT_FALSE(whole.empty()) << name;
    for (int round = 0; round < 300; ++round) {
      std::string text = whole;
      for (int edit = 0; edit < 1 + round % 5; ++edit) {
        const std::size_t at = random() % text.size();
        const std::size_t length = std::min<std::size_t>(random() % 40, text.size() - at);
        switch (random() % 3) {
          case 0:
            text.erase(at, length);
            break;
          case 1:
            text.insert(at, text.substr(random() % text.size(), 20));
            break;
          default:
            text[at] = static_cast<char>(random());
        }
        if (text.empty()) text = "x";
      }
      const auto one_line = [&](const auto& result) {
        if (!result) {
          EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
        }
      };
      const auto matrix = read_topology_matrix(text, name);
      const auto nccl = read_nccl_topology(text, name);
      const auto log = read_nccl_tests_log(text, name);
      one_line(matrix), one_line(nccl), one_line(log);
      MachineReport machine;
      if (matrix) machine.matrix = matrix.value();
      if (nccl) machine.nccl = nccl.value();
      if (log) machine.logs = {log.value()};
      if (matrix || nccl || log) one_line(make_cluster_file(machine, "x"));
    }
  }
}

}  // namespace
}  // namespace rehearse::sim
