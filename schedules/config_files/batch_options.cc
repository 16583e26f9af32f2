// SPDX-License-Identifier: Apache-2.0
#include "schedules/config_files/batch_options.h"

#include <algorithm>
#include <array>

namespace rehearse {
namespace {

bool is_count(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::vector<std::pair<std::string, std::string>> batch_variables(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> made;
  struct Option {
    std::string_view flag;
    std::array<std::string_view, 2> variables;
  };
  constexpr std::array<Option, 6> kOptions{{
      {"--nodes", {"SLURM_NNODES", "SLURM_JOB_NUM_NODES"}},
      {"-N", {"SLURM_NNODES", "SLURM_JOB_NUM_NODES"}},
      {"--ntasks-per-node", {"SLURM_NTASKS_PER_NODE", ""}},
      {"--gpus-per-node", {"SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"}},
      {"--gres", {"SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"}},
      {"--ntasks", {"SLURM_NTASKS", "SLURM_NPROCS"}},
  }};
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view row = text.substr(at, end - at);
    at = end + 1;
    if (!row.starts_with("#SBATCH")) continue;
    row = row.substr(
        7, row.find(" #") == std::string_view::npos ? std::string_view::npos : row.find(" #") - 7);
    row.remove_prefix(std::min(row.find_first_not_of(" \t"), row.size()));
    const std::size_t cut = std::min(row.find_first_of("= \t"), row.size());
    std::string_view value = row.substr(cut);
    value.remove_prefix(std::min(value.find_first_not_of("= \t"), value.size()));
    value = value.substr(0, value.find_first_of(" \t\r"));
    if (const std::size_t colon = value.rfind(':'); colon != std::string_view::npos) {
      value.remove_prefix(colon + 1);
    }
    if (!is_count(value)) continue;
    for (const Option& option : kOptions) {
      if (option.flag != row.substr(0, cut)) continue;
      for (const std::string_view name : option.variables) {
        if (!name.empty()) made.emplace_back(name, value);
      }
    }
  }
  return made;
}

}  // namespace rehearse
