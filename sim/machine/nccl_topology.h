// SPDX-License-Identifier: Apache-2.0
// The topology that NCCL and RCCL write (NCCL_TOPO_DUMP_FILE) and that vendors of virtual machines
// ship (NCCL_TOPO_FILE; without links between GPUs and without speeds of NICs).
//
// <system> holds <cpu>, these <pci>, nested as bridges are, with <gpu> and <nic><net/></nic> at the
// leaves; a GPU's <nvlink target= count= tclass=> (or <xgmi>) leads to a switch where tclass is that
// of a bridge, 0x0680.., else to the GPU of that bus id. Speeds of <net> are in Mbit/s. Source:
// NVIDIA/nccl src/graph/xml.cc, topo.cc.
#pragma once

#include <string>
#include <string_view>

#include "schedules/base/result.h"
#include "sim/machine/node_topology.h"

namespace rehearse::sim {

// Errors: "PATH:LINE: what is wrong".
Result<NodeTopology> read_nccl_topology(std::string_view text, const std::string& path);

}  // namespace rehearse::sim
