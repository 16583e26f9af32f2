// SPDX-License-Identifier: Apache-2.0
#include "cli/ask.h"

#include <locale.h>

#include <string_view>

#include "cli/commands.h"
#include "cli/trace/doctor.h"
#include "schedules/base/bytes/standard_input.h"

namespace rehearse::cli {
namespace {

// Numbers have a point, whatever locale the program that asks has set.
class InCLocale {
 public:
  InCLocale() : c_(newlocale(LC_ALL_MASK, "C", nullptr)), before_(uselocale(c_)) {}
  ~InCLocale() {
    uselocale(before_);
    freelocale(c_);
  }
  InCLocale(const InCLocale&) = delete;
  InCLocale& operator=(const InCLocale&) = delete;

 private:
  locale_t c_, before_;
};

}  // namespace

std::vector<Command> answering_commands() {
  return {plan_command(),    check_command(),    schedule_command(), simulate_command(),
          search_command(),  validate_command(), render_command(),   export_command(),
          compare_command(), explain_command(),  list_command(),     groups_command(),
          doctor_command(),  cluster_command(),  support_command(),  import_command(),
          emit_command()};
}

Answer ask(const std::vector<std::string>& arguments, std::string input) {
  Answer answer;
  const InCLocale point;
  const KeepWords keep(answer.words);
  const AsStandardInput given(std::move(input));
  try {
    for (const std::string_view acts : {"run", "view", "calibrate", "serve"}) {
      if (arguments.empty() || arguments.front() != acts) continue;
      answer.code = fail(arguments.front() + ": acts on this machine: start the command rehearse");
      return answer;
    }
    std::string name = "rehearse";
    std::vector<std::string> words = arguments;
    std::vector<char*> argv{name.data()};
    for (std::string& word : words) argv.push_back(word.data());
    const int argc = static_cast<int>(argv.size());
    argv.push_back(nullptr);
    answer.code = perform(argc, argv.data(), REHEARSE_VERSION, answering_commands());
  } catch (...) {
    answer.code = thrown();
  }
  return answer;
}

}  // namespace rehearse::cli
