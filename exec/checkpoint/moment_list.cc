// SPDX-License-Identifier: Apache-2.0
#include "exec/checkpoint/moment_list.h"

#include <string>

namespace rehearse::exec {

std::vector<TensorInfo> moment_list(const std::vector<TensorInfo>& parameters,
                                    const OptimizerRow& optimizer) {
  std::vector<TensorInfo> moments;
  for (const std::string_view name : optimizer.moments) {
    if (name.empty()) continue;
    for (const TensorInfo& one : parameters) {
      moments.push_back({.name = std::string(name) + one.name, .shape = one.shape});
    }
  }
  return moments;
}

}  // namespace rehearse::exec
