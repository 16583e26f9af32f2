// SPDX-License-Identifier: Apache-2.0
// The contract with scripts: what earlier versions printed and wrote (tests/data/contract). Every
// key of a report survives with its JSON type; files open, or are refused by one line that names
// their version.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace rehearse {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kContract = "tests/data/contract";

std::string bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A version's folder, and an empty one for what today's program writes.
class Contract : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    here_ = std::string(kContract) + '/' + GetParam();
    new_ = fs::path(testing::TempDir()) / ("contract" + std::to_string(getpid()));
    fs::create_directories(new_);
  }
  void TearDown() override { fs::remove_all(new_); }

  struct Outcome {
    int exit_code = -1;
    std::string out, error;
  };
  Outcome run(std::string arguments) const {
    for (const auto& [name, value] :
         {std::pair<std::string, std::string>{"{here}", here_}, {"{new}", new_.string()}}) {
      for (std::size_t at = 0; (at = arguments.find(name, at)) != std::string::npos;)
        arguments.replace(at, name.size(), value);
    }
    const fs::path out = new_ / "stdout", error = new_ / "stderr";
    const int status = std::system((std::string(REHEARSE_COMMAND) + ' ' + arguments + " >" +
                                    out.string() + " 2>" + error.string())
                                       .c_str());
    Outcome outcome{WIFEXITED(status) ? WEXITSTATUS(status) : -1, bytes_of(out), bytes_of(error)};
    fs::remove(out);
    fs::remove(error);
    return outcome;
  }
  // Done, or refused by one line that names the version that wrote the file.
  bool opens(const std::string& arguments) const {
    const Outcome got = run(arguments);
    if (got.exit_code == 0) return true;
    EXPECT_EQ(got.exit_code, 2) << arguments << '\n' << got.error;
    EXPECT_EQ(std::count(got.error.begin(), got.error.end(), '\n'), 1) << got.error;
    EXPECT_NE(got.error.find("version"), std::string::npos)
        << arguments << ": is refused, and its version is not named: " << got.error;
    return false;
  }

  std::string here_;
  fs::path new_;
};

// Types by path: elements of one array are one place, whose types gather.
using Types = std::map<std::string, std::set<std::string>>;
void gather(const Json& value, const std::string& path, Types& types) {
  types[path].insert(value.type_name());
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) gather(member, path + '.' + key, types);
  } else if (value.is_array()) {
    for (const Json& element : value) gather(element, path + "[]", types);
  }
}
Types types_of(const Json& document) {
  Types types;
  gather(document, "", types);
  return types;
}

// What `now` has lost of `then`, a line each. Where `then` had null, any type is its answer today.
std::vector<std::string> lost(const Json& then, const Json& now) {
  std::vector<std::string> lines;
  const Types today = types_of(now);
  for (const auto& [path, types] : types_of(then)) {
    const auto at = today.find(path);
    if (at == today.end()) {
      lines.push_back(path + " is gone");
      continue;
    }
    for (const std::string& type : types) {
      if (type != "null" && !at->second.contains(type))
        lines.push_back(path + " was a " + type + ", now " + *at->second.begin());
    }
  }
  return lines;
}

void expect_survives(const std::string& name, const std::string& then, const std::string& now) {
  const Json before = Json::parse(then, nullptr, false), after = Json::parse(now, nullptr, false);
  ASSERT_FALSE(before.is_discarded()) << name;
  ASSERT_FALSE(after.is_discarded()) << name << ": today's is no JSON: " << now.substr(0, 200);
  for (const std::string& line : lost(before, after)) ADD_FAILURE() << name << ": " << line;
}

TEST(ContractComparison, FindsAKeyThatIsGoneAndOneOfAnotherType) {
  const Json then = Json::parse(R"({"a": 1, "b": [{"c": "x"}, {"c": "y", "d": 2.5}], "e": null})");
  EXPECT_TRUE(lost(then, then).empty());
  const auto now = [&](const char* text) { return lost(then, Json::parse(text)); };
  using Lines = std::vector<std::string>;
  EXPECT_TRUE(now(R"({"a": 2.5, "b": [{"c": "z", "d": 0}], "e": {"more": 1}, "new": 1})").empty());
  EXPECT_EQ(now(R"({"b": [{"c": "z", "d": 0}], "e": 1})"), Lines{".a is gone"});
  EXPECT_EQ(now(R"({"a": "2", "b": [{"c": "z", "d": 0}], "e": 1})"),
            Lines{".a was a number, now string"});
  EXPECT_EQ(now(R"({"a": 2, "b": [{"c": "z"}], "e": 1})"), Lines{".b[].d is gone"});
}

TEST_P(Contract, KeepsEveryKeyOfEveryReportWithItsType) {
  std::ifstream list(here_ + "/reports.txt");
  int reports = 0;
  for (std::string line; std::getline(list, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string file, arguments;
    int code = -1;
    words >> file >> code;
    std::getline(words, arguments);
    const Outcome got = run(arguments);
    EXPECT_EQ(got.exit_code, code) << arguments << '\n' << got.error;
    ++reports;
    if (const fs::path printed = fs::path(here_) / "reports" / file; fs::exists(printed)) {
      expect_survives(file, bytes_of(printed), got.out);
      continue;
    }
    ASSERT_TRUE(fs::exists(new_ / file)) << arguments;
    for (const auto& written : fs::directory_iterator(new_)) {
      const fs::path name = written.path().filename(), then = fs::path(here_) / name;
      ASSERT_TRUE(fs::exists(then)) << name;
      expect_survives(name.string(), bytes_of(then), bytes_of(written.path()));
    }
  }
  EXPECT_GE(reports, 20);
}

TEST_P(Contract, OpensItsTraces) {
  for (const std::string name : {"predicted", "measured"}) {
    const std::string trace = " {here}/" + name + ".trace ";
    opens("compare" + trace + trace);
    opens("render" + trace + "--text");
    opens("export" + trace + "{new}/" + name + ".pftrace --to perfetto");
  }
}

TEST_P(Contract, OpensItsSchedules) {
  opens("check {here}/schedule.csv");
  opens("check {here}/schedule.json");
}

TEST_P(Contract, OpensItsCalibration) {
  opens("run {here}/tiny.json --dry-run --cluster {here}/machine.cluster.json");
  opens(
      "simulate {here}/tiny.json --set plan.runtime=rehearse --cluster "
      "{here}/machine.cluster.json");
}

// Its checkpoint goes on where that version went on: losses to the rounding of sums.
TEST_P(Contract, ResumesItsCheckpointWithTheSameLosses) {
  if (!opens("run {here}/tiny.json --resume {here}/checkpoint --steps 4 --metrics {new}/now.jsonl"))
    return;
  std::ifstream then(here_ + "/resumed.jsonl"), now(new_ / "now.jsonl");
  int steps = 0;
  for (std::string a, b; std::getline(then, a); ++steps) {
    ASSERT_TRUE(std::getline(now, b)) << "step " << steps;
    const Json before = Json::parse(a), after = Json::parse(b);
    for (const char* key : {"step", "loss", "grad_norm", "lr"}) {
      const double was = before[key], is = after[key];
      EXPECT_NEAR(is, was, 1e-5 * std::fabs(was)) << key << " of " << a;
    }
  }
  EXPECT_EQ(steps, 2);
}

std::vector<std::string> versions() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kContract)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Versions, Contract, testing::ValuesIn(versions()), [](const auto& made) {
  std::string name = "v" + made.param;
  for (char& letter : name) letter = letter == '.' ? '_' : letter;
  return name;
});

}  // namespace
}  // namespace rehearse
