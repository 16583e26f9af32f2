// SPDX-License-Identifier: Apache-2.0
// Every kind of layout that the executor runs: what trains like one rank (matrix_test.cc), and
// whose memory is as planned (tests/cli/run/resident_memory_test.cc).
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "tests/exec/step/layouts/pipeline_layouts.h"
#include "tests/exec/step/layouts/product_layouts.h"
#include "tests/exec/step/layouts/replica_layouts.h"
#include "tests/exec/step/layouts/sequence_layouts.h"

namespace rehearse::exec {

inline const std::vector<Cell> kLayouts = [] {
  std::vector<Cell> all(std::begin(kPipelineLayouts), std::end(kPipelineLayouts));
  all.insert(all.end(), std::begin(kReplicaLayouts), std::end(kReplicaLayouts));
  all.insert(all.end(), std::begin(kSequenceLayouts), std::end(kSequenceLayouts));
  all.insert(all.end(), std::begin(kProductLayouts), std::end(kProductLayouts));
  return all;
}();

// Of each kind of layout one or two, and all that have rows of 16 bits in unusual places: offload,
// the ring and what stands for it, parts of a sequence, pieces of products, a loss in chunks or on
// one rank, shards over a part of the replicas.
inline constexpr const char* kIn16Bits[] = {"one_f_one_b_pp4",
                                            "zb_v_pp4",
                                            "full_llama",
                                            "full",
                                            "full_3_layers",
                                            "offload_optimizer_zero2_pp2",
                                            "offload_activations_zero3",
                                            "chimera_pp2",
                                            "tp2",
                                            "tp2_sp",
                                            "tp4_two_heads",
                                            "grid_2x2",
                                            "grid_4x2_full",
                                            "ddp2_overlap",
                                            "parameter_server2",
                                            "zero1_dp2",
                                            "zero1_dp4_overlap",
                                            "zero2_dp4",
                                            "zero3_dp4",
                                            "zero3_dp4_shards2",
                                            "zero3_dp4_second2",
                                            "cp2",
                                            "cp2_tp2_sp",
                                            "gather_cp2",
                                            "heads_cp2",
                                            "loss_chunks_3_tp2_sp",
                                            "seq_1f1b_pp2_4",
                                            "pp2_tp2_dp2_zero3",
                                            "chunks_8_tp2_sp"};
inline std::vector<Cell> layouts_in_16_bits() {
  std::vector<Cell> cells;
  for (const std::string name : kIn16Bits) {
    const auto found = std::ranges::find(kLayouts, name, &Cell::name);
    if (found != std::end(kLayouts)) cells.push_back(*found);
  }
  return cells;
}

}  // namespace rehearse::exec
