// SPDX-License-Identifier: Apache-2.0
// Tiny models of every dialect through the real command, against what transformers makes of the
// same file in float64 (tests/data/configs/README.md): equal, or refused with the key named.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "exec/train/data.h"
#include "schedules/base/random.h"

namespace rehearse {
namespace {

using Json = nlohmann::ordered_json;

std::uint64_t fnv1a(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

// The formula of the README.
std::vector<float> weights(const std::string& name, const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  double base = 0, spread = 1.0 / std::sqrt(static_cast<double>(shape.back()));
  if (shape.size() == 1) {
    const bool norm =
        name.find("norm") != std::string::npos || name.find("ln_") != std::string::npos;
    base = norm && name.ends_with("weight") ? 1 : 0;
    spread = 0.2;
  }
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) {
    const double u =
        static_cast<double>(split_mix(fnv1a(name), static_cast<std::uint64_t>(i)) >> 40) /
        16777216.0;
    values.push_back(static_cast<float>(base + (2 * u - 1) * spread));
  }
  return values;
}

void write_safetensors(const Json& tensors, const std::string& path) {
  Json header = Json::object();
  std::vector<float> all;
  for (const auto& [name, shape] : tensors.items()) {
    const std::vector<float> values = weights(name, shape.get<std::vector<std::int64_t>>());
    const std::size_t begin = all.size() * 4;
    all.insert(all.end(), values.begin(), values.end());
    header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, all.size() * 4}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), 8);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  out.write(reinterpret_cast<const char*>(all.data()),
            static_cast<std::streamsize>(4 * all.size()));
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

class ConfigGolden : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "configs.XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Exit status; stdout and stderr are in files of the folder.
  int command(const std::string& arguments) const {
    const std::string line = std::string(REHEARSE_COMMAND) + " " + arguments + " >" +
                             (folder_ / "out").string() + " 2>" + (folder_ / "err").string();
    const int status = std::system(line.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::filesystem::path folder_;
};

TEST_F(ConfigGolden, EveryCaseIsEqualToTransformersOrRefusedByName) {
  std::ifstream in("tests/data/configs/goldens.json");
  const Json golden = Json::parse(in);
  const std::string scenario = (folder_ / "s.json").string();
  int equal = 0, refused = 0;
  double worst_loss = 0, worst_norm = 0;
  for (const Json& one : golden["cases"]) {
    const std::string name = one["name"];
    SCOPED_TRACE(name);
    std::ofstream(scenario) << Json{{"model", one["config"]},
                                    {"cluster", "dgx-a100-80gb"},
                                    {"gpus", 1},
                                    {"plan", golden["made_by"]["plan"]},
                                    {"train", golden["made_by"]["train"]}};
    std::string arguments = "run " + scenario + " --device cpu --threads 1 --json";
    if (one["refused"].is_null()) {
      const std::string file = (folder_ / "w.safetensors").string();
      write_safetensors(one["tensors"], file);
      arguments += " --resume " + file;
    }
    const int exit = command(arguments);
    const std::string said = text_of(folder_ / "err");
    if (!one["refused"].is_null()) {
      EXPECT_EQ(exit, 2) << said;
      EXPECT_NE(said.find("model." + one["refused"].get<std::string>()), std::string::npos) << said;
      EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
      ++refused;
      continue;
    }
    ASSERT_EQ(exit, 0) << said;
    const Json report = Json::parse(text_of(folder_ / "out"));
    ASSERT_EQ(report["losses"].size(), one["losses"].size());
    for (std::size_t step = 0; step < one["losses"].size(); ++step) {
      const double loss =
          std::abs(report["losses"][step].get<double>() - one["losses"][step].get<double>());
      const double norm =
          std::abs(report["grad_norms"][step].get<double>() / one["norms"][step].get<double>() - 1);
      EXPECT_LE(loss, 2e-6) << "step " << step;
      EXPECT_LE(norm, 1e-4) << "step " << step;
      worst_loss = std::max(worst_loss, loss);
      worst_norm = std::max(worst_norm, norm);
    }
    ++equal;
  }
  std::printf("%d equal (losses within %.1e, norms within %.1e), %d refused\n", equal, worst_loss,
              worst_norm, refused);
  EXPECT_GE(equal, 40);
  EXPECT_GE(refused, 30);
}

// What `run` refuses `--dry-run` refuses too, and `simulate` takes and says what it priced.
TEST_F(ConfigGolden, WhatRunRefusesDryRunRefusesAndSimulatePrices) {
  std::ifstream in("tests/data/configs/goldens.json");
  const Json golden = Json::parse(in);
  const std::string scenario = (folder_ / "s.json").string();
  for (const Json& one : golden["cases"]) {
    if (one["refused"].is_null()) continue;
    const std::string key = "model." + one["refused"].get<std::string>();
    SCOPED_TRACE(one["name"].get<std::string>());
    std::ofstream(scenario) << Json{{"model", one["config"]},
                                    {"cluster", "dgx-a100-80gb"},
                                    {"gpus", 1},
                                    {"plan", golden["made_by"]["plan"]}};
    EXPECT_EQ(command("run " + scenario + " --dry-run --json"), 2);
    EXPECT_NE(text_of(folder_ / "err").find(key), std::string::npos);
    ASSERT_EQ(command("simulate " + scenario + " --json"), 0) << text_of(folder_ / "err");
    const Json report = Json::parse(text_of(folder_ / "out"));
    EXPECT_NE(report["notes"].dump().find(key), std::string::npos) << report["notes"];
  }
}

}  // namespace
}  // namespace rehearse
