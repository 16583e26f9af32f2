// SPDX-License-Identifier: Apache-2.0
#include "schedules/config_files/arguments.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>

#include "schedules/frameworks/formula.h"

namespace rehearse {
namespace {

bool is_flag(std::string_view word) {
  if (word.starts_with("--")) return word.size() > 2;
  return word.size() > 1 && word[0] == '-' &&
         std::isalpha(static_cast<unsigned char>(word[1])) != 0;
}

// A launcher's words for numbers of processes: of all nodes, of one, and of nodes.
struct Launcher {
  std::string_view program;
  std::array<std::string_view, 4> each{}, nodes{}, all{};
};
constexpr Launcher kLaunchers[]{
    {"torchrun", {"--nproc_per_node", "--nproc-per-node"}, {"--nnodes"}, {}},
    {"torch.distributed.run", {"--nproc_per_node", "--nproc-per-node"}, {"--nnodes"}, {}},
    {"torch.distributed.launch", {"--nproc_per_node", "--nproc-per-node"}, {"--nnodes"}, {}},
    {"ft_launcher", {"--nproc_per_node", "--nproc-per-node"}, {"--nnodes"}, {}},
    {"accelerate", {}, {"--num_machines"}, {"--num_processes"}},
    {"deepspeed", {"--num_gpus"}, {"--num_nodes"}, {}},
    {"mpirun", {}, {}, {"-np", "-n"}},
    {"srun", {"--ntasks-per-node", "--gpus-per-node"}, {"-N", "--nodes"}, {"-n", "--ntasks"}},
};

std::string_view file_name(std::string_view path) {
  return path.substr(path.rfind('/') == std::string_view::npos ? 0 : path.rfind('/') + 1);
}

// A whole number from 1 on, the last one of "2:8".
std::int32_t count_of(std::string_view text, bool& elastic) {
  if (const std::size_t colon = text.rfind(':'); colon != std::string_view::npos) {
    elastic = true;
    text.remove_prefix(colon + 1);
  }
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value > 0 && value <= 1 << 20
             ? value
             : 0;
}

class Counts {
 public:
  explicit Counts(std::span<const ShellWord> words) : words_(words) {}
  std::int32_t of(std::span<const std::string_view> flags) {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      const std::string_view word = words_[i].text;
      for (const std::string_view flag : flags) {
        if (flag.empty()) continue;
        if (word == flag && i + 1 < words_.size()) return count_of(words_[i + 1].text, elastic);
        if (word.starts_with(flag) && word.substr(flag.size()).starts_with('=')) {
          return count_of(word.substr(flag.size() + 1), elastic);
        }
      }
    }
    return 0;
  }
  bool elastic = false;

 private:
  std::span<const ShellWord> words_;
};

std::int32_t variable(const ShellScript& script, const std::string& name) {
  const auto found = script.variables.find(name);
  bool elastic = false;
  return found == script.variables.end() ? 0 : count_of(found->second.text, elastic);
}

}  // namespace

std::vector<Setting> flags_of_words(std::span<const ShellWord> words, const std::string& file,
                                    const std::function<bool(std::string_view)>& takes_nothing,
                                    std::vector<std::string>& warnings) {
  std::vector<Setting> flags;
  for (const ShellWord& word : words) {
    if (is_flag(word.text)) {
      const std::size_t equals = word.text.find('=');
      Setting flag{.flag = word.text.substr(0, equals), .file = file, .line = word.line};
      if (equals != std::string::npos) flag.values.push_back(word.text.substr(equals + 1));
      flags.push_back(std::move(flag));
      continue;
    }
    const bool loose = flags.empty() || takes_nothing(flags.back().flag);
    if (!loose) {
      flags.back().values.push_back(word.text);
    } else if (const std::string name = unknown_in(word.text); !name.empty()) {
      warnings.push_back("what $" + name + " holds is not known, and is left out");
    } else if (!flags.empty() && !word.text.empty()) {
      flags.back().values.push_back(word.text);  // true, false; or said to be too much
    }
  }
  for (Setting& flag : flags) {
    for (std::string& value : flag.values) {
      if (flag.unknown.empty()) flag.unknown = unknown_in(value);
      value = shown_unknown(value);
    }
  }
  return flags;
}

Result<LaunchCommand> launch_command(const ShellScript& script, const std::string& path,
                                     const std::function<bool(std::string_view)>& known) {
  LaunchCommand best;
  std::int64_t most = -1;
  std::vector<ShellWord> outer;  // srun ... of a command that ends in bash -c
  for (const ShellCommand& command : script.commands) {
    const std::vector<ShellWord>& words = command.words;
    if (!words.empty() && (words[0].text == "echo" || words[0].text == "printf")) continue;
    std::size_t program = words.size();
    for (std::size_t i = 0; i < words.size(); ++i) {
      const bool module = i > 0 && words[i - 1].text == "-m" &&
                          !words[i].text.starts_with("torch.distributed") &&
                          !words[i].text.starts_with("accelerate");
      if (!words[i].text.ends_with(".py") && !module) continue;
      program = i;
      break;
    }
    if (program == words.size()) {
      if (!words.empty() && file_name(words[0].text) == "srun") outer = words;
      continue;
    }
    std::int64_t count = 0;
    for (std::size_t i = program + 1; i < words.size(); ++i) {
      const std::string_view word = words[i].text;
      count += is_flag(word) && known(word.substr(0, word.find('='))) ? 1 : 0;
    }
    if (count <= most) continue;
    most = count;
    best.program = std::string(file_name(words[program].text));
    best.launcher = outer;
    const auto split = words.begin() + static_cast<std::ptrdiff_t>(program);
    best.launcher.insert(best.launcher.end(), words.begin(), split);
    best.arguments.assign(split + 1, words.end());
  }
  if (most < 0) {
    return Error{path + ": no command in it starts a Python program with flags: nothing to import"};
  }
  return best;
}

Launch launched(const LaunchCommand& command, const ShellScript& script,
                std::vector<std::string>& warnings) {
  Launch made;
  for (const auto& [name, value] : script.exported) {
    made.environment.push_back(
        {.flag = name, .values = {shown_unknown(value.text)}, .line = value.line});
  }
  for (const Launcher& launcher : kLaunchers) {
    const bool here = std::ranges::any_of(command.launcher, [&](const ShellWord& word) {
      return file_name(word.text) == launcher.program;
    });
    if (!here) continue;
    Counts counts(command.launcher);
    const std::int32_t all = counts.of(launcher.all), each = counts.of(launcher.each);
    const std::int32_t nodes = counts.of(launcher.nodes);
    if (counts.elastic) {
      warnings.push_back(std::string(launcher.program) +
                         " starts on several numbers of nodes: the largest is taken");
    }
    if (all > 0)
      made.gpus = all;
    else if (each > 0)
      made.gpus = each * std::max(nodes, 1);
    if (made.gpus == 0) continue;
    made.nodes = nodes;
    made.gpus_per_node = each;
    return made;
  }
  const std::int32_t nodes = variable(script, "SLURM_NNODES");
  const std::int32_t each =
      std::max(variable(script, "SLURM_GPUS_PER_NODE"), variable(script, "SLURM_NTASKS_PER_NODE"));
  if (nodes > 0 && each > 0) {
    made.gpus = nodes * each;
    made.nodes = nodes;
    made.gpus_per_node = each;
  }
  return made;
}

}  // namespace rehearse
