// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/readers.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "exec/checkpoint/checkpoint_state.h"
#include "exec/checkpoint/tensor_files.h"
#include "exec/train/data.h"
#include "schedules/base/json_reader.h"
#include "schedules/config_files/open_config.h"
#include "schedules/frameworks/import_flags.h"
#include "schedules/model/config/hf_config.h"
#include "schedules/scenario/scenario.h"
#include "sim/accuracy/validation.h"
#include "sim/cluster/cluster.h"
#include "sim/compute/kernel_scalars.h"
#include "sim/memory/memory_profile.h"
#include "sim/network/collective_model.h"
#include "sim/predict/predict.h"
#include "sim/report/report.h"
#include "sim/search/space/space.h"
#include "viz/analysis/analysis.h"
#include "viz/import/import.h"
#include "viz/picture/terminal.h"
#include "viz/profile/read_profiles.h"
#include "viz/profile/waits.h"

namespace rehearse::testing {
namespace {
namespace fs = std::filesystem;

// Stops the process, as sanitizers do: a fuzzer keeps the input that did it.
void must(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: %s\n", what.c_str());
  std::abort();
}

template <class T>
bool answered(const Result<T>& result) {
  if (result) return true;
  const std::string& line = result.error().message;
  must(!line.empty() && line.find('\n') == std::string::npos, "not one line: " + line);
  return false;
}

// A folder of this process in memory, where there is one.
class Folder {
 public:
  Folder() {
    std::error_code none;
    std::string name = (fs::is_directory("/dev/shm", none) ? "/dev/shm" : "/tmp");
    name += "/rehearse_fuzz.XXXXXX";
    if (mkdtemp(name.data()) != nullptr) path_ = name;
    must(!path_.empty(), "no folder for inputs");
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  // The bytes as a file of that name; its path.
  std::string file(std::string_view bytes, const char* name) const {
    std::string path = path_ + '/' + name;
    std::FILE* out = std::fopen(path.c_str(), "wb");
    must(out != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), out) == bytes.size() &&
             std::fclose(out) == 0,
         "cannot write inputs");
    return path;
  }

 private:
  std::string path_;
};
const Folder& folder() {
  static const Folder made;
  return made;
}

// --- descriptions ---

// Small enough to be predicted thousands of times.
bool is_small(const Scenario& scenario) {
  const Plan& plan = scenario.plan;
  return scenario.model.layers <= 16 && scenario.gpus <= 64 && plan.global_batch <= 64 &&
         plan.virtual_stages <= 4 && plan.pipeline_parallel <= 8 && !plan.micro_batch_auto &&
         plan.sequence_slices <= 8 && !plan.schedule.starts_with("zb_") &&
         plan.schedule != "auto" && !plan.schedule.starts_with("file:") &&
         !plan.schedule.starts_with("v_");
}

void predict_sensibly(const Scenario& scenario, const sim::Cluster& cluster) {
  if (!is_small(scenario)) return;
  const Result<sim::Prediction> made = sim::predict(scenario, cluster);
  if (!answered(made)) return;
  const sim::Prediction& p = made.value();
  must(p.step_s >= 0 && p.bubbles.idle >= 0 && p.bubbles.busy >= 0, "negative times");
  const std::string json = sim::report_json(p, scenario, cluster);
  must(static_cast<bool>(parse_json(json, "report")), "a report that is no JSON");
}

bool scenario(std::string_view text) {
  const Result<Scenario> read = parse_scenario(text, "fuzz.json", 1, {});
  if (!answered(read)) return false;
  const Result<sim::Cluster> cluster = sim::read_cluster(read.value().cluster);
  if (answered(cluster)) predict_sensibly(read.value(), cluster.value());
  return true;
}

bool space(std::string_view text) {
  return answered(sim::parse_space(text, "fuzz.json", {}));
}

bool model(std::string_view text) {
  const Result<Transformer> read = read_transformer(folder().file(text, "config.json"));
  if (!answered(read)) return false;
  must(total_parameters(read.value()) >= 0, "negative parameters");
  return true;
}

const Scenario& small_scenario() {
  static const Scenario made = parse_scenario(R"({"model": {"model_type": "gpt2", "n_embd": 64,
      "n_layer": 4, "n_head": 4, "n_positions": 64, "vocab_size": 256}, "gpus": 4,
      "cluster": "clusters/dgx-a100-80gb.json", "plan": {"pipeline_parallel": 2,
      "tensor_parallel": 2, "micro_batch": 1, "global_batch": 4}})",
                                              "small.json", 1, {})
                                   .value();
  return made;
}

bool cluster(std::string_view text) {
  const Result<sim::Cluster> read = sim::read_cluster(
      {.path = "fuzz.json", .inline_json = std::string(text.empty() ? " " : text), .line = 1});
  if (!answered(read)) return false;
  predict_sensibly(small_scenario(), read.value());
  return true;
}

bool calibration(std::string_view text) {
  const Result<sim::Calibration> read = sim::read_calibration(folder().file(text, "tables.json"));
  if (!answered(read)) return false;
  static const sim::Cluster base =
      sim::read_cluster({.path = "scenarios/clusters/dgx-a100-80gb.json"}).value();
  sim::Cluster with = base;
  const std::string path = folder().file(text, "tables.json");
  JsonValue document = read_json("scenarios/clusters/dgx-a100-80gb.json").value();
  document.members.push_back({.key = "calibration", .line = 0, .value = {}});
  document.members.back().value.kind = JsonKind::String;
  document.members.back().value.text = path;
  const Result<sim::Cluster> whole =
      sim::read_cluster({.path = "fuzz.json", .inline_json = to_json_text(document), .line = 1});
  if (answered(whole)) predict_sensibly(small_scenario(), whole.value());
  return true;
}

bool validation(std::string_view text) {
  const Result<sim::ValidationFile> read =
      sim::read_validation(folder().file(text, "cases.json"), {});
  if (!answered(read)) return false;
  for (const sim::ValidationCase& entry : read.value().cases) {
    must(entry.skipped.find('\n') == std::string::npos, "skipped in several lines");
  }
  must(static_cast<bool>(parse_json(sim::validation_json({read.value()}), "validation")),
       "a report that is no JSON");
  return true;
}

// Tables that are shipped, and may be replaced by one's own (REHEARSE_SCENARIOS).
bool tables(std::string_view text) {
  const std::string path = folder().file(text, "default.json");
  const std::string place = path.substr(0, path.rfind('/'));
  static const sim::Cluster base =
      sim::read_cluster({.path = "scenarios/clusters/dgx-a100-80gb.json"}).value();
  const bool collectives = answered(sim::read_collective_tables(path));
  const bool scalars = answered(sim::read_kernel_scalars(base, place));
  return answered(sim::read_memory_profile(path)) || scalars || collectives;
}

// --- traces ---

void use(const Trace& trace) {
  must(trace_fault(trace).empty(), "a trace that its own check refuses");
  if (trace.start_ns.size() > 5000 || trace.lanes.size() > 1000) return;
  const viz::TraceIndex index(trace);
  (void)viz::terminal_chart(index, {.columns = 40});
  (void)viz::summarize(index, 0, (trace.end - trace.begin).value, 0,
                       static_cast<std::int32_t>(trace.rows.size()));
  (void)viz::statistics(trace, 8);
  (void)viz::critical_path(trace);
  (void)viz::difference(trace, trace);
}

// What doctor makes of profiles: every row adds up to its step.
void add_up(std::vector<viz::RankProfile> profiles) {
  const Result<viz::JobTimes> job = viz::job_times(profiles);
  if (!answered(job)) return;
  for (const viz::StepTimes& step : job.value().steps) {
    must(step.own() + step.communicating + step.waiting == step.length(), "parts of no step");
    must(std::accumulate(step.waits_for.begin(), step.waits_for.end(), std::int64_t{0}) ==
             step.waiting,
         "waiting for nobody");
  }
  must(!viz::job_text(job.value(), nullptr).empty(), "no words");
}

bool trace(std::string_view bytes) {
  Result<Trace> read = read_trace(folder().file(bytes, "a.trace"));
  if (!answered(read)) return false;
  use(read.value());
  if (read.value().num_ops() < 5000) add_up(viz::trace_profiles(read.value(), "a.trace"));
  return true;
}

bool profile(std::string_view bytes) {
  const std::string path = folder().file(bytes, "profile.json");
  Result<Trace> read = viz::load_trace(path);
  if (read) use(read.value());
  const Result<std::string> text = viz::read_inflated(path);
  if (!answered(read) || !text) return false;
  static const viz::Families families = viz::Families::read().value();
  Result<viz::RankProfile> rank = viz::kineto_profile(text.value(), path, families);
  if (!answered(rank)) return true;
  viz::RankProfile one = std::move(rank).value();
  one.rank = 0;
  viz::RankProfile other = one;  // as if all ranks did the same
  other.rank = 1;
  add_up({std::move(one), std::move(other)});
  return true;
}

bool spans(std::string_view text) {
  static const viz::Families families = viz::Families::read().value();
  Result<std::vector<viz::RankProfile>> read =
      viz::span_profiles({{"spans.jsonl", std::string(text)}}, families);
  if (!answered(read)) return false;
  add_up(std::move(read).value());
  return true;
}

// --- frameworks' own configurations ---

const std::vector<Framework>& frameworks() {
  static const std::vector<Framework> read = known_frameworks("").value();
  return read;
}

// As a file of that name, whose ending says its form; what is imported is a scenario.
bool config(std::string_view bytes, const char* name) {
  const Result<OpenedConfig> opened =
      open_config({.files = {folder().file(bytes, name)}}, frameworks());
  if (!answered(opened)) return false;
  const Result<Imported> made =
      import_flags(opened.value().framework, opened.value().settings,
                   {.gpus = 64, .model = "llama3-8b", .ignore_unknown = true, .brief = false});
  if (!answered(made)) return false;
  must(answered(parse_scenario(made.value().text, "imported.json", 1, {.needs_cluster = false})),
       "what was imported is no scenario");
  must(static_cast<bool>(parse_json(import_json(made.value()), "import")),
       "a report that is no JSON");
  return true;
}
bool script(std::string_view bytes) {
  return config(bytes, "train.sh");
}
bool arguments(std::string_view bytes) {
  return config(bytes, "flags.args");
}
bool recipe(std::string_view bytes) {
  return config(bytes, "recipe.py");
}
bool yaml(std::string_view bytes) {
  return config(bytes, "config.yaml");
}
bool toml(std::string_view bytes) {
  return config(bytes, "config.toml");
}
bool json_config(std::string_view bytes) {
  return config(bytes, "config.json");
}

// --- checkpoints and data ---

void read_all(const exec::SafetensorsFile& file) {
  std::vector<float> values;
  for (const exec::TensorInfo& tensor : file.tensors()) {
    must(tensor.begin <= tensor.end && tensor.elements() >= 0, "a tensor of negative size");
    if (!exec::SafetensorsFile::readable(tensor)) continue;
    values.resize(static_cast<std::size_t>(tensor.elements()));
    file.read(tensor, 0, tensor.elements(), values.data(), 1);
  }
}

bool safetensors(std::string_view bytes) {
  const Result<exec::SafetensorsFile> read =
      exec::SafetensorsFile::open(folder().file(bytes, "model.safetensors"));
  if (!answered(read)) return false;
  read_all(read.value());
  return true;
}

bool tensor_index(std::string_view text) {
  folder().file(std::string_view("\x02\0\0\0\0\0\0\0{}", 10), "model-00001-of-00001.safetensors");
  return answered(exec::TensorFiles::open(folder().file(text, "model.safetensors.index.json")));
}

bool state(std::string_view text) {
  const std::string path = folder().file(text, "state.json");
  (void)answered(exec::read_head(path));
  const Result<JsonValue> json = parse_json(text, "state");
  if (!json) return answered(exec::read_state(path, small_scenario().model));
  if (const JsonValue* sums = json.value().given("crc32c")) {
    (void)answered(exec::read_digests(*sums, path));
  }
  static const Transformer tiny =
      parse_scenario(read_text_file("tests/data/contract/0.1/tiny.json", 1 << 20).value(),
                     "tests/data/contract/0.1/tiny.json", 1, {})
          .value()
          .model;
  return answered(exec::read_state(path, tiny));
}

bool tokens(std::string_view bytes) {
  const Result<exec::Data> read = exec::Data::open(folder().file(bytes, "t.bin"), 60000, 1);
  if (!answered(read)) return false;
  std::array<std::int32_t, 16> inputs{}, targets{};
  for (const std::int64_t number : {0, 1, 1000}) {
    read.value().sample(number, 16, inputs.data(), targets.data());
  }
  return true;
}

}  // namespace

std::span<const Reader> readers() {
  static const std::vector<std::string> kConfigs{"tests/data/frameworks"};
  static const std::vector<Reader> kReaders{
      {"scenario", scenario, {"scenarios", "tests/error/scenarios"}, 1000},
      {"space", space, {"scenarios/search", "scenarios"}, 500},
      {"model", model, {"scenarios/models", "tests/error/models"}},
      {"cluster", cluster, {"scenarios/clusters", "tests/error/clusters"}, 300},
      {"calibration", calibration, {"tests/data/contract/0.1/machine.json"}, 300},
      {"validation",
       validation,
       {"tests/data/validation", "tests/data/contract/0.1/cases.json"},
       50},
      {"tables", tables, {"scenarios/kernels", "scenarios/runtimes"}, 500},
      {"trace",
       trace,
       {"tests/data/contract/0.1/predicted.trace", "tests/data/contract/0.1/measured.trace"}},
      {"profile",
       profile,
       {"tests/data/viz/kineto_sample.json", "tests/data/viz/kineto_sample.json.gz",
        "tests/data/viz/kineto_pipeline"}},
      {"spans", spans, {"tests/data/profiles/megatron_spans.jsonl"}},
      {"script", script, kConfigs, 200},
      {"arguments", arguments, {"tests/data/fuzz/arguments"}, 200},
      {"recipe", recipe, kConfigs, 200},
      {"yaml", yaml, kConfigs, 200},
      {"toml", toml, kConfigs, 200},
      {"json_config", json_config, kConfigs, 200},
      {"safetensors", safetensors, {"tests/data/contract/0.1/checkpoint/step-000002"}},
      {"tensor_index", tensor_index, {"tests/data/fuzz/tensor_index"}},
      {"state", state, {"tests/data/contract/0.1/checkpoint/step-000002/state.json"}},
      {"tokens", tokens, {"tests/data/fuzz/tokens"}},
  };
  return kReaders;
}

const Reader* find_reader(std::string_view name) {
  const auto at = std::ranges::find(readers(), name, &Reader::name);
  return at == readers().end() ? nullptr : &*at;
}

std::vector<std::string> seeds_of(const Reader& reader) {
  std::vector<std::string> places = reader.seeds, paths, seeds{"", "{}", "[]", "{"};
  places.push_back("tests/data/fuzz/" + std::string(reader.name));
  for (const std::string& place : places) {
    std::error_code none;
    if (fs::is_regular_file(place, none)) paths.push_back(place);
    for (fs::directory_iterator entry(place, none), end; !none && entry != end;
         entry.increment(none)) {
      std::error_code unknown;
      if (entry->is_regular_file(unknown)) paths.push_back(entry->path().string());
    }
  }
  std::ranges::sort(paths);
  for (const std::string& path : paths) {
    std::ifstream in(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return seeds;
}

}  // namespace rehearse::testing
