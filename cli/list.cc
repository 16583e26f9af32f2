// SPDX-License-Identifier: Apache-2.0
// rehearse list: what is shipped, one line each.
#include <fmt/format.h>

#include <algorithm>

#include "cli/commands.h"
#include "schedules/base/files.h"
#include "schedules/base/json_document.h"
#include "schedules/base/json_reader.h"
#include "schedules/model/config/hf_config.h"
#include "schedules/order/registry.h"
#include "schedules/runtime/runtime_file.h"
#include "sim/cluster/cluster.h"

namespace rehearse::cli {
namespace {

struct ListOptions {
  std::string kind;
  bool json = false;
};

// `about` for people, the rest for scripts.
struct Entry {
  std::string id, about;
  Json facts = Json::object();
};

std::string shipped_file(const std::string& folder, const std::string& id) {
  return find_file(id, "", folder).value_or(id);
}

Result<Entry> model(const std::string& id) {
  const Result<ModelFile> read = read_model_file(shipped_file("models", id));
  if (!read) return read.error();
  const Transformer& m = read.value().model;
  const std::int64_t parameters = total_parameters(m);
  const bool executed = std::ranges::none_of(
      read.value().use.unperformed, [](const Unperformed& key) { return key.key == "model_type"; });
  return Entry{
      id,
      fmt::format("{:.4g} billion parameters, {} layers of {}, {} tokens of vocabulary; {}: {}",
                  static_cast<double>(parameters) * 1e-9, m.layers, m.hidden, m.vocabulary,
                  m.model_type, executed ? "priced, executed" : "priced"),
      {{"parameters", parameters},
       {"layers", m.layers},
       {"hidden_size", m.hidden},
       {"model_type", m.model_type},
       {"executed", executed}}};
}

Result<Entry> cluster(const std::string& id) {
  const Result<sim::Cluster> read = sim::read_cluster({.path = shipped_file("clusters", id)});
  if (!read) return read.error();
  const sim::Cluster& c = read.value();
  std::string about = fmt::format("{}: {} x {}", c.name, c.gpus_per_node, c.gpu.name);
  for (const sim::TorusAxis& axis : c.scale_up.axes) {
    about +=
        fmt::format("{}{}", &axis == c.scale_up.axes.data() ? ", torus of " : " x ", axis.size);
  }
  if (c.nics.count > 0) {
    about += fmt::format(", {} x {:.0f} Gbit/s between nodes", c.nics.count,
                         c.nics.bandwidth_each.value * 8e-9);
  }
  return Entry{id,
               about,
               {{"name", c.name},
                {"gpu", c.gpu.name},
                {"gpus_per_node", c.gpus_per_node},
                {"nics", c.nics.count}}};
}

Result<Entry> scenario(const std::string& id) {
  const Result<JsonValue> read = read_json(shipped_file("", id + ".json"));
  if (!read) return read.error();
  const JsonValue* name = read.value().given("name");
  return Entry{id, name == nullptr ? "" : name->text};
}

Result<Entry> runtime(const std::string& id) {
  const Result<RuntimeTraits> read = read_runtime(id, "");
  if (!read) return read.error();
  return Entry{id, read.value().title, {{"own_executor", read.value().own_executor}}};
}

std::string_view stages_of(ChunkRule rule) {
  switch (rule) {
    case ChunkRule::One:
      return "one stage per position";
    case ChunkRule::Many:
      return "virtual_stages stages per position";
    case ChunkRule::V:
      return "two stages per position, in a V";
    case ChunkRule::Waves:
      return "virtual_stages stages per position, in waves";
    case ChunkRule::Bidirectional:
      return "two directions";
    case ChunkRule::BidirectionalV:
      return "two stages per position, in a V, and two directions";
    case ChunkRule::Any:
      break;
  }
  return "any placement";
}

Result<Entry> schedule(const std::string& id) {
  const ScheduleInfo& info = *find_schedule(id);
  std::string about(stages_of(info.chunks));
  if (info.splits_backward) about += "; input and weight gradients apart";
  if (info.sliced) about += "; slices of sequences";
  if (info.planned) about += "; planned for durations and memory";
  Json aliases = Json::array();
  for (const std::string_view alias : info.aliases) {
    if (!alias.empty()) aliases.push_back(alias);
  }
  return Entry{id, about, {{"aliases", aliases}}};
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const ScheduleInfo& info : schedule_table()) names.emplace_back(info.name);
  return names;
}

struct Kind {
  std::string_view name;
  std::vector<std::string> (*ids)();
  Result<Entry> (*entry)(const std::string& id);
};
constexpr std::array kKinds{
    Kind{"models", [] { return shipped_names("models"); }, model},
    Kind{"clusters", [] { return shipped_names("clusters"); }, cluster},
    Kind{"scenarios", [] { return shipped_names(""); }, scenario},
    Kind{"schedules", schedule_names, schedule},
    Kind{"runtimes", [] { return shipped_names("runtimes"); }, runtime},
};

int list(const ListOptions& options) {
  const Kind& kind = *std::ranges::find(kKinds, options.kind, &Kind::name);
  std::vector<Entry> entries;
  std::size_t width = 0;
  for (const std::string& id : kind.ids()) {
    Result<Entry> entry = kind.entry(id);
    if (!entry) return fail(entry.error().message);
    width = std::max(width, id.size());
    entries.push_back(std::move(entry).value());
  }
  std::string text;
  Json all = Json::array();
  for (const Entry& entry : entries) {
    Json row{{"id", entry.id}, {"about", entry.about}};
    row.update(entry.facts);
    all.push_back(std::move(row));
    text += fmt::format("{:<{}}  {}\n", entry.id, width, entry.about);
  }
  print_text(options.json ? all.dump(2) + "\n" : text);
  return kDone;
}

}  // namespace

Command list_command() {
  const auto o = std::make_shared<ListOptions>();
  Command command{"list", "what is shipped: models, clusters, scenarios, schedules, runtimes"};
  command.options = {
      required({"KIND", &o->kind, "models, clusters, scenarios, schedules or runtimes",
                names_of(kKinds)}),
      {"--json", &o->json, "one JSON document on stdout"},
  };
  command.footer = "Example: rehearse list clusters";
  command.perform = [o](const Given&) { return list(*o); };
  return command;
}

}  // namespace rehearse::cli
