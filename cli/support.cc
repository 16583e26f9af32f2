// SPDX-License-Identifier: Apache-2.0
// rehearse support: what predictions rest on, for every shipped model, GPU and precision.
#include <algorithm>

#include "cli/commands.h"
#include "schedules/base/files.h"
#include "schedules/base/shipped.h"
#include "sim/accuracy/support.h"

namespace rehearse::cli {
namespace {

struct SupportOptions {
  std::string name, model, gpu;
  bool json = false;
};

int support(const SupportOptions& options) {
  std::vector<std::string> models = shipped_names("models");
  if (!options.name.empty() && !options.model.empty()) {
    return fail("MODEL and --model exclude each other");
  }
  const std::string& one_model = options.name.empty() ? options.model : options.name;
  if (!one_model.empty()) {
    const auto meant = meant_id(one_model, "models");
    if (!meant) return fail("MODEL: " + no_such_file(one_model, "models"));
    models = {*meant};
  }
  Result<std::vector<sim::Cluster>> clusters = sim::clusters_by_gpu();
  if (!clusters) return fail(clusters.error());
  std::vector<sim::Cluster> asked = std::move(clusters).value();
  if (!options.gpu.empty()) {
    const auto path = find_meant_file(options.gpu, "", "clusters");
    if (!path) return fail("--gpu: " + no_such_file(options.gpu, "clusters"));
    Result<sim::Cluster> one = sim::read_cluster({.path = *path});
    if (!one) return fail(one.error());
    if (one.value().workers > 0) return fail("--gpu: " + *path + ": is a CPU");
    asked = {std::move(one).value()};
  }
  const auto rows = sim::support_rows(models, asked);
  if (!rows) return fail(rows.error());
  const bool each = !one_model.empty();
  print_text(options.json ? sim::support_json(rows.value())
                          : sim::support_text(rows.value(), each));
  return kDone;
}

}  // namespace

Command support_command() {
  const auto o = std::make_shared<SupportOptions>();
  Command command{"support", "what predictions rest on: model x GPU x precision"};
  command.options = {
      {"MODEL", &o->name, "a shipped model: a line for each GPU and precision; left out: counts"},
      {"--model", &o->model, "the same"},
      {"--gpu", &o->gpu, "the GPU of one cluster: its file, or a shipped one's name"},
      {"--json", &o->json, "one JSON document on stdout"},
  };
  command.footer = "Example: rehearse support llama3-8b --gpu h100";
  command.perform = [o](const Given&) { return support(*o); };
  return command;
}

}  // namespace rehearse::cli
