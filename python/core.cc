// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>
#include <vector>

#include "cli/ask.h"

namespace {

std::tuple<int, std::string, std::string> ask(const std::vector<std::string>& arguments,
                                              const std::string& input) {
  const nanobind::gil_scoped_release released;
  rehearse::cli::Answer answer = rehearse::cli::ask(arguments, input);
  return {answer.code, std::move(answer.words.text), std::move(answer.words.errors)};
}

}  // namespace

NB_MODULE(_core, module) {
  module.def("ask", &ask, nanobind::arg("arguments"), nanobind::arg("input"));
  module.attr("version") = REHEARSE_VERSION;
}
