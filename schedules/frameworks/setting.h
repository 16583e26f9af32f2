// SPDX-License-Identifier: Apache-2.0
// What somebody's own files say, before anybody knows what it means: flags with their values, how
// many GPUs are launched, the environment. Readers of files make it (config_files/).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace rehearse {

struct Setting {
  std::string flag;                 // "--num-layers", "training.seq_len"
  std::vector<std::string> values;  // none: the flag alone
  std::string file;
  std::int32_t line = 0;
  bool null = false;      // a file says null: as if it were left out
  std::string unknown{};  // the variable that a value hangs on and only a run knows
};

struct Launch {
  std::int32_t gpus = 0;  // that the files launch; 0: they do not say
  std::int32_t nodes = 0, gpus_per_node = 0;
  std::vector<Setting> environment;  // what a script exports: NAME, its value
};

struct Settings {
  std::string program;         // that is launched: "pretrain_gpt.py"; empty: the files do not say
  std::vector<Setting> flags;  // in the order of the files
  Launch launch;
  std::vector<std::string> warnings;  // of the readers
  // A function and the file that has it, on which the files rest and which is not there:
  // "llama3_8b_config of megatron/bridge/recipes/llama/llama3.py"; empty: none.
  std::string missing_base;
};

}  // namespace rehearse
