// SPDX-License-Identifier: Apache-2.0
// What `nvidia-smi` prints: the matrix of `topo -m`, and the GPU's name where it stands beside it
// (`nvidia-smi -L`, the table of `nvidia-smi`, or a line "GPU 0,1: NAME").
//
//           GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity
//   GPU0     X      NV18    PXB     0-55            0
//   GPU1    NV18     X      NODE    0-55            0
//   NIC0    PXB     NODE     X
//
// NV#: so many NVLinks; PIX, PXB: behind one PCIe switch; PHB, NODE: through the CPU's bridges;
// SYS: between NUMA nodes (the legend that nvidia-smi prints). Colours are passed over.
#pragma once

#include <string>
#include <string_view>

#include "schedules/base/result.h"
#include "sim/machine/node_topology.h"

namespace rehearse::sim {

// Errors: "PATH:LINE: what is wrong": no matrix and no name, a row that is short or missing, a word
// that is no connection, two GPUs that see each other differently.
Result<NodeTopology> read_topology_matrix(std::string_view text, const std::string& path);

}  // namespace rehearse::sim
