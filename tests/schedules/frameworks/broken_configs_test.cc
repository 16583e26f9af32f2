// SPDX-License-Identifier: Apache-2.0
// Configurations that are cut, garbled, huge or nested without end: one line, never a crash, never
// a process or another file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "schedules/config_files/open_config.h"
#include "schedules/config_files/shell/shell_script.h"
#include "schedules/frameworks/import_flags.h"

namespace rehearse {
namespace {

namespace fs = std::filesystem;

std::string bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

const std::vector<Framework>& frameworks() {
  static const std::vector<Framework> read = known_frameworks("").value();
  return read;
}

class BrokenConfigs : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("broken" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // What an import of these bytes says; empty: it worked.
  std::string said(const std::string& name, const std::string& bytes) {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << bytes;
    std::string line;
    const Result<OpenedConfig> opened = open_config({.files = {path}}, frameworks());
    if (!opened) {
      line = opened.error().message;
    } else {
      const Result<Imported> made =
          import_flags(opened.value().framework, opened.value().settings,
                       {.gpus = 64, .model = "llama3-8b", .brief = false});
      if (!made) line = made.error().message;
    }
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    return line;
  }

  fs::path folder_;
};

std::vector<fs::path> examples() {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator("tests/data/frameworks")) {
    if (entry.is_regular_file() && entry.path().filename() != "cases.json") {
      found.push_back(entry.path());
    }
  }
  std::ranges::sort(found);
  return found;
}

// What is said of a word that goes on over lines stands on one.
TEST_F(BrokenConfigs, WordsOverLinesAreSaidOnOne) {
  EXPECT_NE(said("train.sh", "torchrun 'a\nb.py' --zork 1\n").find("a?b.py"), std::string::npos);
  EXPECT_NE(said("recipe.py", "print(\"\"\"a\nb\"\"\")\n").find("a?b"), std::string::npos);
}

TEST_F(BrokenConfigs, CutAnywhereTheyAreRead) {
  for (const fs::path& path : examples()) {
    const std::string whole = bytes_of(path);
    for (std::size_t part = 0; part < 5; ++part) {
      SCOPED_TRACE(path.string() + " cut at " + std::to_string(whole.size() * part / 5));
      said(path.filename().string(), whole.substr(0, whole.size() * part / 5));
    }
  }
}

TEST_F(BrokenConfigs, WithOneTokenReplacedTheyAreRead) {
  std::mt19937_64 engine(7);
  const std::vector<std::string> tokens{"\"",  "'",    "${",   "$((", "(",   ")",     "[",  "]",
                                        "<<E", "`",    "\\",   "-1",  "1e9", "auto",  "{{", "}}",
                                        "if",  "done", "\x01", "|",   "&&",  "--x=y", "#",  "é"};
  for (const fs::path& path : examples()) {
    const std::string whole = bytes_of(path);
    for (int i = 0; i < 3; ++i) {
      std::string text = whole;
      const std::size_t at = engine() % std::max<std::size_t>(text.size(), 1);
      text.replace(at, engine() % 6, tokens[engine() % tokens.size()]);
      SCOPED_TRACE(path.string() + " at " + std::to_string(at));
      said(path.filename().string(), text);
    }
  }
}

TEST_F(BrokenConfigs, WhatCannotBeReadSaysWhy) {
  EXPECT_NE(said("a.sh", std::string("torchrun x.py --bf16 \0", 22)).find("no text"),
            std::string::npos);
  EXPECT_NE(said("a.sh", "echo hello\n").find("no command"), std::string::npos);
  EXPECT_NE(said("a.sh", "torchrun x.py --num-layers \"12\n").find("does not end"),
            std::string::npos);
  EXPECT_NE(said("a.yaml", "a: [1, 2").find("not YAML"), std::string::npos);
  for (const std::string toml : {"[a\nb = 1\n", "[=]\n", "[{a = 1}]\n", "[[!]]\n"}) {
    EXPECT_NE(said("a.toml", toml).find("not TOML"), std::string::npos) << toml;
  }
  EXPECT_NE(said("a.json", "{\"a\": ").find("a.json"), std::string::npos);
  EXPECT_NE(said("a.yaml", "hello: world\n").find("not a configuration"), std::string::npos);
  EXPECT_NE(said("big.sh", std::string(std::size_t{2} << 20, 'a')).find("big.sh"),
            std::string::npos);
  const std::string deep(20'000, '[');
  EXPECT_NE(said("deep.yaml", "a: " + deep), "");
  EXPECT_NE(said("deep.toml", "a = " + deep), "");
  EXPECT_NE(said("deep.json", "{\"a\": " + deep), "");
  EXPECT_NE(said("deep.py", "def f():\n    cfg.a = " + deep), "");
  EXPECT_NE(said("deep.sh", "A=" + std::string(5'000, '(')), "");
}

// Also where toml++ 3.3.0 has no answer to whether a letter is a space.
TEST_F(BrokenConfigs, LettersOfAnyAlphabetAreReadAsTheyAreWritten) {
  const std::string quoted =
      said("letters.toml",
           "# 日本語, größer\n[model]\nflavor = \"8B\"\n[training]\n\"größe слоя\" = \"é\"\n"
           "local_batch_size = 1\n[parallelism]\npipeline_parallel_degree = 1\n");
  EXPECT_NE(quoted.find(":5: training.gr????e ????????: "), std::string::npos)
      << quoted;  // by bytes
  for (const std::string bare : {"größe", "слой", "、", "\u3000"}) {
    const std::string line = said("letters.toml", "[training]\n" + bare + " = 1\n");
    EXPECT_NE(line.find(":2: not TOML: "), std::string::npos) << line;
  }
  EXPECT_NE(said("letters.toml", "a = \"\U000F0041\"\n").find("private character"),
            std::string::npos);
}

TEST_F(BrokenConfigs, TextsThatGrowEndInOneLine) {
  std::string script = "A=aaaaaaaaaa\n";
  for (int i = 0; i < 40; ++i) script += "A=\"$A$A\"\n";
  EXPECT_NE(said("a.sh", script + "torchrun x.py --bf16 $A\n").find("million"), std::string::npos);
  std::string aliases = "a0: &a0 [x]\n";
  for (int i = 1; i < 30; ++i) {
    const std::string before = std::to_string(i - 1), now = std::to_string(i);
    aliases += "a" + now + ": &a" + now + " [*a" + before + ", *a" + before + "]\n";
  }
  EXPECT_NE(said("a.yaml", aliases).find("100000"), std::string::npos);
}

// Where a quote is left out, an expression goes on over lines (a fuzzer's find).
TEST_F(BrokenConfigs, AnExpressionOverLinesIsSaidInOne) {
  const std::string recipe =
      "from megatron.bridge.training.config import ConfigContainer\n\n\n"
      "def one() -> ConfigContainer:\n    cfg = base()\n"
      "    cfg.mixed_precision = precision\": 0,\n  \"scale\": 16,\n    return cfg\n";
  EXPECT_NE(said("recipe.py", recipe).find("is known to a run alone"), std::string::npos)
      << said("recipe.py", recipe);
}

TEST_F(BrokenConfigs, AFlagThatNobodyKnowsIsNamedWithTheNearest) {
  const std::string script = "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layer 12 --bf16\n";
  const std::string line = said("train.sh", script);
  EXPECT_NE(line.find("train.sh:1: --num-layer: "), std::string::npos) << line;
  EXPECT_NE(line.find("--num-layers"), std::string::npos) << line;
}

TEST_F(BrokenConfigs, TrainersThatDoMoreThanTrainAreNamedAndRefused) {
  for (const auto& [name, title] :
       {std::pair{"nemo_rl", "NeMo-RL"}, std::pair{"verl", "verl"}, std::pair{"trl", "TRL"}}) {
    const std::string file = std::string(name) + ".yaml";
    const std::string line = said(file, bytes_of("tests/data/frameworks/refused/" + file));
    EXPECT_NE(line.find(title), std::string::npos) << line;
    EXPECT_NE(line.find("rehearse plan"), std::string::npos) << line;
  }
}

// What a script says runs nowhere: neither processes nor files.
TEST_F(BrokenConfigs, AScriptIsNotRun) {
  const std::string mark = (folder_ / "mark").string();
  const std::string script = "touch " + mark + "\n$(touch " + mark + ")\nX=`touch " + mark +
                             "`\nsource " + mark + "\ncat <<E > " + mark +
                             "\nhello\nE\ntorchrun pretrain_gpt.py --num-layers $(touch " + mark +
                             ")\n";
  const std::string line = said("train.sh", script);
  EXPECT_FALSE(fs::exists(mark));
  EXPECT_NE(line.find("--var"), std::string::npos) << line;
}

TEST(ShellScript, ExpandsAsAShellWould) {
  const std::string text = R"(A=(1 "two words" $((2+3*4)))
B=("${A[@]}" --x=${UNSET:-7} ${1:-first})
C="${B[*]} ${#A[@]}"
if [ "$C" = "" ] || [[ ${A[0]} -eq 1 && -n "x" ]]; then D=yes; else D=no; fi
[ "$D" = yes ] && E=ran
F='$A'
run.py "${B[@]}" $C $D $E $F ${A[1]} "a"'b'c \
  last # comment
)";
  const Result<ShellScript> read = read_shell_script(text, "t.sh", {});
  ASSERT_TRUE(read) << read.error().message;
  std::string words;
  for (const ShellWord& word : read.value().commands.back().words) words += word.text + "|";
  EXPECT_EQ(
      words,
      "run.py|1|two words|14|--x=7|first|1|two|words|14|--x=7|first|3|yes|ran|$A|two|words|abc|"
      "last|");
}

}  // namespace
}  // namespace rehearse
