// SPDX-License-Identifier: Apache-2.0
// A process killed while it writes a checkpoint, at every call that changes a file: what is left
// resumes from the newest whole step, whichever that is, and the next save works.
//
// This program has the C library's calls that change files itself (the linker takes ours first,
// also for libstdc++): each counts, and at the chosen one the process ends as SIGKILL ends it, of a
// write after half of it.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/exec/checkpoint/checkpoint_case.h"

namespace {

int calls = 0;    // that change a file, so far
int kill_at = 0;  // 1: at the first; 0: never

int writes = 0;  // of tensors

bool ends_here() {
  return ++calls == kill_at;
}
// Tensors are written long before state.json, which says that they are: every 32nd of these writes
// stands for those around it, but in the long form.
bool counts() {
  return ++writes % 32 == 1 || std::getenv("REHEARSE_TEST_LONG") != nullptr;
}
void step() {
  if (ends_here()) _exit(9);
}

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int rename(const char* from, const char* to) noexcept {
  step();
  return real<int(const char*, const char*)>("rename")(from, to);
}
int unlink(const char* path) noexcept {
  step();
  return real<int(const char*)>("unlink")(path);
}
int unlinkat(int folder, const char* path, int flags) noexcept {
  step();
  return real<int(int, const char*, int)>("unlinkat")(folder, path, flags);
}
int rmdir(const char* path) noexcept {
  step();
  return real<int(const char*)>("rmdir")(path);
}
int remove(const char* path) noexcept {
  step();
  return real<int(const char*)>("remove")(path);
}
int mkdir(const char* path, mode_t mode) noexcept {
  step();
  return real<int(const char*, mode_t)>("mkdir")(path, mode);
}
// Who is killed loses nothing that was written: only the moment counts here, and disks are slow.
int fsync(int) {
  step();
  return 0;
}
ssize_t pwrite(int file, const void* data, size_t bytes, off_t at) {
  const auto write = real<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  if (counts() && ends_here()) {
    (void)!write(file, data, bytes / 2, at);
    _exit(9);
  }
  return write(file, data, bytes, at);
}
int posix_fallocate(int file, off_t at, off_t bytes) {
  step();
  return real<int(int, off_t, off_t)>("posix_fallocate")(file, at, bytes);
}
FILE* fopen(const char* path, const char* mode) {
  if (mode[0] == 'w') step();
  return real<FILE*(const char*, const char*)>("fopen")(path, mode);
}
size_t fwrite(const void* data, size_t size, size_t count, FILE* file) {
  const auto write = real<size_t(const void*, size_t, size_t, FILE*)>("fwrite");
  if (file != stdout && file != stderr && ends_here()) {
    (void)!write(data, size, count / 2, file);
    std::fflush(file);
    _exit(9);
  }
  return write(data, size, count, file);
}
int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  if ((flags & O_CREAT) != 0) step();
  return real<int(const char*, int, ...)>("open")(path, flags, mode);
}

}  // extern "C"

namespace rehearse::exec {
namespace {
namespace fs = std::filesystem;

class Killed : public CheckpointTest {
 protected:
  // In a process of its own that ends at call `at` of those that change a file, or after the save.
  // Returns whether it came to its end.
  bool save_until(const Training& run, std::int64_t step, int at, std::int64_t shard_bytes) {
    const pid_t child = fork();
    if (child == 0) {
      calls = writes = 0;
      kill_at = at;
      const Result<> saved =
          save_checkpoint(folder_, run.state(step), *run.process, {}, shard_bytes);
      _exit(saved ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status)) << at;
    EXPECT_NE(WEXITSTATUS(status), 1) << "the save failed, call " << at;
    return WEXITSTATUS(status) == 0;
  }
  bool holds(const std::string& name, const std::string& part) {
    return fs::exists(at(name + part));
  }

  // `before`: steps that lie there whole, each of its own run. Kills the save of `step` at every
  // call, and looks each time whether the newest whole step is what a new run begins with.
  void kill_everywhere(const std::vector<std::pair<std::int64_t, const Training*>>& before,
                       const Training& run, std::int64_t step, std::int64_t shard_bytes) {
    const auto expected_new = everything(run);
    const std::string name = "step-00000" + std::to_string(step);
    for (const auto& [older, of] : before) {
      ASSERT_TRUE(prepare_checkpoints(folder_));
      ASSERT_TRUE(save_checkpoint(folder_, of->state(older), *of->process, {}, shard_bytes));
    }
    const std::string prepared = folder_ + ".before";
    fs::rename(folder_, prepared);
    const auto expected_old = before.empty() ? expected_new : everything(*before.back().second);
    Training back(Family::Gpt2, {});
    bool was_new = false;
    int at = 1, old_ones = 0, new_ones = 0;
    for (bool whole = false; !whole; ++at) {
      fs::remove_all(folder_);
      fs::copy(prepared, folder_, fs::copy_options::recursive);
      whole = save_until(run, step, at, shard_bytes);
      for (const StoredBucket& stored : back.process->stored()) {  // what was loaded the last time
        std::fill(stored.moments[0], stored.moments[0] + (stored.own_last - stored.own_first),
                  -1.0F);
      }
      const Result<Checkpoint> opened = back.open(folder_);
      if (!opened) {
        ASSERT_TRUE(before.empty()) << "call " << at << ": " << opened.error().message;
        EXPECT_EQ(opened.error().message.find('\n'), std::string::npos);
        EXPECT_FALSE(was_new) << at;
        ++old_ones;
      } else {
        const Result<> loaded = opened.value().load(*back.process);
        ASSERT_TRUE(loaded) << "call " << at << ": " << loaded.error().message;
        const auto found = everything(back);
        const bool is_new = found == expected_new;
        ASSERT_TRUE(is_new || (!before.empty() && found == expected_old)) << "call " << at;
        EXPECT_EQ(opened.value().state().step, is_new ? step : before.back().first);
        EXPECT_TRUE(is_new || !was_new) << "call " << at << ": it was there already";
        // What has its final name, or only waits for it, is whole.
        EXPECT_TRUE(is_new || !holds(name + ".old", "/state.json")) << at;
        was_new = is_new;
        (is_new ? new_ones : old_ones) += 1;
        std::string latest = bytes_of(this->at("latest"));
        if (!latest.empty()) latest.pop_back();
        const bool final = is_new && holds(name, "") && latest == name && !holds(name + ".tmp", "");
        if (final) {
          EXPECT_EQ(opened.value().note(), "") << at;
        } else if (is_new && latest != name) {
          EXPECT_NE(opened.value().note().find("the newest whole checkpoint"), std::string::npos)
              << at << opened.value().note();
        }
      }
      // The next one is written over whatever is left, and then is the newest.
      ASSERT_TRUE(save_checkpoint(folder_, back.state(step + 1), *back.process, {}, shard_bytes));
      EXPECT_EQ(back.load(folder_).step, step + 1) << at;
    }
    fs::remove_all(prepared);
    RecordProperty("points", at - 1);
    EXPECT_GT(old_ones, 10);
    EXPECT_GT(new_ones, 3);  // the renames, `latest`, and the folder being brought to the disk
  }
};

TEST_F(Killed, InTheFirstSaveOfAFolderLeavesNothingOrAWholeStep) {
  Training run(Family::Gpt2, {});
  run.train_to(1);
  kill_everywhere({}, run, 1, kShardBytes);
}

TEST_F(Killed, InALaterSaveLeavesTheStepBeforeOrTheNewOne) {
  Training older(Family::Gpt2, {}), run(Family::Gpt2, {});
  older.train_to(1);
  run.train_to(2);
  kill_everywhere({{1, &older}}, run, 2, 700'000);  // several shards
}

TEST_F(Killed, WhileItReplacesAStepLeavesOneOfBoth) {
  Training first(Family::Gpt2, {}), older(Family::Gpt2, {}), run(Family::Gpt2, {});
  older.train_to(1);
  run.train_to(2);
  kill_everywhere({{1, &first}, {2, &older}}, run, 2, kShardBytes);
}

// Who goes back to an earlier step and trains on from there has that as the newest, not the larger
// number.
TEST_F(Killed, AfterGoingBackTheLastWrittenStepIsTheNewest) {
  Training first(Family::Gpt2, {}), second(Family::Gpt2, {});
  second.train_to(1);
  first.save(folder_, 5);
  second.save(folder_, 3);
  for (int at = 1; !save_until(first, 4, at, kShardBytes); ++at) {
    Training back(Family::Gpt2, {});
    const TrainFrom from = back.load(folder_);
    EXPECT_TRUE(from.step == 3 || from.step == 4) << from.step;
    if (HasFailure()) return;
    fs::remove_all(this->at("step-000004"));
    fs::remove_all(this->at("step-000004.tmp"));
  }
}

}  // namespace
}  // namespace rehearse::exec
