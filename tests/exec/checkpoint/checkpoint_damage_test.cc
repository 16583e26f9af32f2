// SPDX-License-Identifier: Apache-2.0
// A checkpoint with one byte changed anywhere is refused, and the line names the file and the
// tensor; one of version 0.1, which has no sums, is read as it always was.
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "exec/checkpoint/crc32c.h"
#include "tests/exec/checkpoint/checkpoint_case.h"

namespace rehearse::exec {
namespace {
namespace fs = std::filesystem;

using Damage = CheckpointTest;

std::span<const std::byte> bytes_in(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// RFC 3720, appendix B.4: its first three examples; "123456789" is the usual check value.
TEST(Crc32c, IsTheStandardsInBothForms) {
  const std::string zeros(32, '\0'), ones(32, '\xFF');
  std::string rising;
  for (char c = 0; c < 32; ++c) rising += c;
  const std::pair<std::string, std::uint32_t> known[] = {{"", 0},
                                                         {"123456789", 0xE3069283},
                                                         {zeros, 0x8A9136AA},
                                                         {ones, 0x62A8AB43},
                                                         {rising, 0x46DD794E}};
  for (const auto& [text, sum] : known) {
    EXPECT_EQ(crc32c(bytes_in(text)), sum);
    EXPECT_EQ(crc32c_portable(bytes_in(text)), sum);
  }
  // In two parts, at every place: as at once.
  const std::string text = "every interrupted checkpoint resumes from the newest whole step";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    const auto all = bytes_in(text);
    EXPECT_EQ(crc32c(all.subspan(cut), crc32c(all.first(cut))), crc32c_portable(all));
  }
}

// What a run says of a checkpoint: the error of open() or load(); empty: it takes it.
std::string said(const Training& run, const std::string& path) {
  const Result<Checkpoint> opened = run.open(path);
  if (!opened) return opened.error().message;
  const Result<> loaded = opened.value().load(*run.process);
  return loaded ? "" : loaded.error().message;
}

class OneByte {
 public:
  OneByte(const std::string& path, std::size_t at, char mask) : path_(path), at_(at), mask_(mask) {
    flip();
  }
  ~OneByte() { flip(); }
  OneByte(const OneByte&) = delete;
  OneByte& operator=(const OneByte&) = delete;

 private:
  void flip() {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at_));
    const char byte = static_cast<char>(file.get() ^ mask_);
    file.seekp(static_cast<std::streamoff>(at_));
    file.put(byte);
  }
  std::string path_;
  std::size_t at_;
  char mask_;
};

// In every file of a checkpoint in several shards: bytes of headers, indices and state.json (all of
// them in the long form, every 29th in the short one), and of every tensor the first, the last and
// one in between. In all of them one bit, another one each time.
TEST_F(Damage, OfAnyByteIsNamedWithItsFileAndTensor) {
  const std::size_t stride = std::getenv("REHEARSE_TEST_LONG") != nullptr ? 1 : 29;
  Training run(Family::Gpt2, {});
  run.train_to(1);
  run.save(folder_, 1, 700'000);
  const std::string step = at("step-000001");
  ASSERT_EQ(said(run, folder_), "");
  std::size_t tried = 0, files = 0;
  for (const auto& entry : fs::directory_iterator(step)) {
    const std::string path = entry.path(), name = entry.path().filename();
    std::vector<std::pair<std::size_t, std::string>> places;  // byte, and what must be named
    std::size_t plain = fs::file_size(path);
    if (name.ends_with(".safetensors")) {
      const auto file = SafetensorsFile::open(path);
      plain = file.value().header().size();
      for (const TensorInfo& tensor : file.value().tensors()) {
        for (const std::int64_t place :
             {tensor.begin, (tensor.begin + tensor.end) / 2, tensor.end - 1}) {
          places.emplace_back(place, tensor.name + ": ");
        }
      }
    }
    for (std::size_t at = tried % stride; at < plain; at += stride) places.emplace_back(at, "");
    for (const auto& [at, tensor] : places) {
      const OneByte flipped(path, at, static_cast<char>(1 << (at % 8)));
      const std::string line = said(run, tried++ % 2 == 0 ? folder_ : step);
      ASSERT_NE(line, "") << name << " byte " << at;
      EXPECT_TRUE(line.starts_with(path)) << name << " byte " << at << ": " << line;
      EXPECT_NE(line.find(tensor), std::string::npos) << name << " byte " << at << ": " << line;
      EXPECT_EQ(line.find('\n'), std::string::npos) << line;
      if (HasFailure()) return;
    }
    ++files;
  }
  EXPECT_GE(files, 5U);  // two shards and an index of one stem at least
  EXPECT_GT(tried, 500U);
  EXPECT_EQ(said(run, folder_), "");
}

// The sums and the count are all that 0.1 did not write.
TEST_F(Damage, IsNotLookedForInFilesOfVersion01) {
  Training run(Family::Gpt2, {}), back(Family::Gpt2, {});
  run.train_to(1);
  run.save(folder_, 1);
  without_digests(at("step-000001/state.json"));
  EXPECT_EQ(back.load(folder_).step, 1);
  EXPECT_EQ(everything(back), everything(run));
}

// Of folders that 0.1 wrote the one that `latest` names is gone on from, where it is whole.
TEST_F(Damage, OfLatestFallsBackToTheNewestWholeStep) {
  Training run(Family::Gpt2, {});
  for (const std::int64_t step : {1, 2, 3}) run.save(folder_, step);
  const auto resumes = [&](const std::string& step, const std::string& note) {
    const Result<Checkpoint> opened = run.open(folder_);
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_EQ(opened.value().state().step, step.back() - '0');
    EXPECT_NE(opened.value().note().find(note), std::string::npos) << opened.value().note();
    EXPECT_EQ(opened.value().note().empty(), note.empty());
  };
  resumes("step-000003", "");
  put(at("latest"), "step-000002\n");  // killed between two renames
  resumes("step-000003", "latest: names \"step-000002\"; the run goes on from step-000003");
  put(at("latest"), "step-000009\n");
  resumes("step-000003", "names \"step-000009\"; the run goes on from step-000003");
  put(at("latest"), "../step-000001\n");
  resumes("step-000003", "the run goes on from step-000003");
  put(at("latest"), "");
  resumes("step-000003", "latest: is missing");
  fs::remove(at("latest"));
  resumes("step-000003", "latest: is missing");
  fs::remove(at("step-000003/state.json"));  // a copy that was not finished
  resumes("step-000002", "the run goes on from step-000002");
  // Damage in a newer step is not passed over in silence.
  put(at("step-000003/state.json"), "{}");
  const Result<Checkpoint> refused = run.open(folder_);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("step-000003/state.json: schema"), std::string::npos)
      << refused.error().message;
}

// The second moment of one element overflows, all else is finite: nothing that was good is
// replaced, and the folder is as it was.
TEST_F(Damage, OfTheOptimizersNumbersIsNotWritten) {
  Training run(Family::Gpt2, {});
  run.train_to(1);
  run.save(folder_, 1);
  for (const float bad : {INFINITY, NAN}) {
    const StoredBucket stored = run.process->stored().front();
    float& element = stored.moments[1][(stored.own_last - stored.own_first) / 2];
    const float before = element;
    element = bad;
    const Result<> saved = save_checkpoint(folder_, run.state(2), *run.process, {});
    ASSERT_FALSE(saved);
    EXPECT_TRUE(saved.error().infeasible);
    EXPECT_TRUE(saved.error().message.starts_with("exp_avg_sq.")) << saved.error().message;
    EXPECT_FALSE(fs::exists(at("step-000002")));
    EXPECT_FALSE(fs::exists(at("step-000002.tmp")));
    EXPECT_EQ(bytes_of(at("latest")), "step-000001\n");
    element = before;
  }
}

TEST_F(Damage, IsNotDoneByADataFilesName) {
  Training run(Family::Gpt2, {});
  CheckpointState state = run.state(1);
  state.data = "r\xE9sum\xE9 \xE2\x82\xAC.txt";  // Latin-1, then a character of UTF-8
  ASSERT_TRUE(save_checkpoint(folder_, state, *run.process, {}));
  EXPECT_EQ(run.load(folder_).step, 1);
  EXPECT_NE(bytes_of(at("step-000001/state.json")).find("sum\xEF\xBF\xBD \xE2\x82\xAC.txt"),
            std::string::npos);
}

// A pipe that nobody writes to is refused, not waited for.
TEST_F(Damage, IsSaidOfAPipeInTheFilesPlace) {
  Training run(Family::Gpt2, {});
  run.save(folder_, 1);
  for (const std::string name : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    const std::string path = at("step-000001/") + name;
    fs::rename(path, path + ".whole");
    ASSERT_EQ(mkfifo(path.c_str(), 0666), 0);
    EXPECT_NE(said(run, at("step-000001")).find("not a regular file"), std::string::npos)
        << said(run, at("step-000001"));
    fs::remove(path);
    fs::rename(path + ".whole", path);
  }
  ASSERT_EQ(mkfifo(at("w.safetensors").c_str(), 0666), 0);
  EXPECT_NE(said(run, at("w.safetensors")).find("not a regular file"), std::string::npos);
}

}  // namespace
}  // namespace rehearse::exec
