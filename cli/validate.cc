// SPDX-License-Identifier: Apache-2.0
// rehearse validate: measured cases predicted, and the errors of the predictions.

#include <cmath>
#include <cstdio>

#include "cli/commands.h"
#include "cli/words.h"
#include "sim/accuracy/validation.h"

namespace rehearse::cli {
namespace {

struct ValidateOptions {
  std::vector<std::string> files;
  double max_error = -1;  // < 0: not asked for
  bool json = false;
};

// One line that is overwritten, on a terminal alone.
void show_progress(const sim::ValidationFile& file, std::size_t done) {
  if (!on_terminal(stderr)) return;
  std::fprintf(stderr, "\r\033[K%s: %zu of %zu", file.path.c_str(), done, file.cases.size());
  if (done == file.cases.size()) std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
}

int validate(const ValidateOptions& options) {
  std::vector<sim::ValidationFile> files;
  for (const std::string& path : options.files) {
    Result<sim::ValidationFile> file = sim::read_validation(path, {});
    if (!file) return fail(file.error().message);
    files.push_back(std::move(file).value());
  }
  for (sim::ValidationFile& file : files) {
    for (std::size_t i = 0; i < file.cases.size(); ++i) {
      const Result<> predicted = sim::predict_case(file.cases[i], file.path);
      if (!predicted) return fail(predicted.error().message);
      show_progress(file, i + 1);
    }
  }
  const Result<sim::ErrorTable> errors = sim::shipped_error_table();
  if (!errors) return fail(errors.error().message);
  print_text(options.json ? sim::validation_json(files, errors.value())
                          : sim::validation_text(files, errors.value()));
  if (options.max_error < 0) return kDone;
  for (const sim::ValidationFile& file : files) {
    std::vector<const sim::ValidationCase*> cases;
    for (const sim::ValidationCase& entry : file.cases) cases.push_back(&entry);
    const sim::FileScore score = sim::score(cases);
    if (score.missed_tolerances > 0 ||
        (score.step_time && score.step_time->mean_abs_error > options.max_error)) {
      return kNo;
    }
  }
  return kDone;
}

}  // namespace

Command validate_command() {
  const auto o = std::make_shared<ValidateOptions>();
  Command command{"validate", "predict measured cases and report the error per file and per case"};
  command.options = {
      required({"CASES", &o->files, "files of measured cases"}),
      {"--max-error", &o->max_error,
       "exit 1 where a file's mean |error| of step time is above X (0.05 = 5 %), or a "
       "tolerance is missed",
       Number{0, 1e9}},
      {"--json", &o->json, "one JSON document on stdout"},
  };
  command.footer =
      "Example: rehearse validate tests/data/validation/megatron_sc21.json --max-error 0.2";
  command.perform = [o](const Given&) { return validate(*o); };
  return command;
}

}  // namespace rehearse::cli
