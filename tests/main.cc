// SPDX-License-Identifier: Apache-2.0
// The main of every test program: tests read their data by paths from the project's root, so a
// program goes there first, wherever it was started. REHEARSE_ROOT names that root to a program
// that was built elsewhere. What Google Test is told of files (--gtest_output) still counts from
// where the program was started. What tests write (testing::TempDir()) lies in a folder of this
// process, so that programs that run side by side share no file; it goes when the tests end.
// A program of several tests (tests/CMakeLists.txt) is told by --of=FILE:FILE..., paths below
// tests/, whose it runs; what else Google Test is told (--gtest_filter) counts among those. Exit 2:
// the tests cannot run.
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace {

// Whether `file`, as the compiler knew it, is one of `files`, joined by colons.
bool is_of(std::string_view file, std::string_view files) {
  const std::size_t root = file.rfind("tests/");
  if (root == std::string_view::npos) return false;
  const std::string name = ":" + std::string(file.substr(root + 6)) + ":";
  return (":" + std::string(files) + ":").find(name) != std::string::npos;
}

// The filter without the tests that come from other files than `files`. False: there is no test of
// theirs.
bool keep_tests_of(std::string_view files) {
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  std::string filter = GTEST_FLAG_GET(filter);
  filter += filter.find('-') == std::string::npos ? "-" : ":";
  bool any = false;
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    int kept = 0;
    for (int t = 0; t < suite.total_test_count(); ++t)
      kept += is_of(suite.GetTestInfo(t)->file(), files);
    any = any || kept > 0;
    if (kept == suite.total_test_count()) continue;
    if (kept == 0) {
      filter += std::string(suite.name()) + ".*:";
      continue;
    }
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      if (!is_of(test.file(), files)) filter += std::string(suite.name()) + "." + test.name() + ":";
    }
  }
  GTEST_FLAG_SET(filter, filter);
  return any;
}

}  // namespace

#ifdef __SANITIZE_ADDRESS__
// What a library holds by variables of its own counts as lost once it is closed, and Mesa closes
// its driver with every window. So none is, and what is lost in ours is seen as before.
extern "C" int dlclose(void*) {
  return 0;
}
#endif

#ifdef __SANITIZE_THREAD__
// The call by which a timed_mutex waits until a steady time; g++ 12's ThreadSanitizer does not see
// it, and takes what the mutex orders for races. It sees pthread_mutex_trylock.
extern "C" int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock,
                                       const timespec* until) noexcept {
  for (;;) {
    const int locked = pthread_mutex_trylock(mutex);
    timespec now{};
    clock_gettime(clock, &now);
    if (locked != EBUSY) return locked;
    if (std::pair(now.tv_sec, now.tv_nsec) >= std::pair(until->tv_sec, until->tv_nsec))
      return ETIMEDOUT;
    usleep(1000);
  }
}
#endif

int main(int count, char** arguments) {
  const char* given = std::getenv("REHEARSE_ROOT");
  const char* root = given == nullptr ? REHEARSE_ROOT : given;
  std::error_code failed;
  std::filesystem::current_path(root, failed);
  if (failed) {
    std::fprintf(stderr, "%s: the tests' data: %s\n", root, failed.message().c_str());
    return 2;
  }
  std::string folder = std::filesystem::temp_directory_path(failed) / "rehearse-test-XXXXXX";
  if (failed || mkdtemp(folder.data()) == nullptr) {
    std::fprintf(stderr, "no temporary folder: %s\n",
                 failed ? failed.message().c_str() : std::strerror(errno));
    return 2;
  }
  setenv("TEST_TMPDIR", (folder + "/").c_str(), 1);
  testing::InitGoogleTest(&count, arguments);
  int status = 0;
  if (count > 1 && std::strncmp(arguments[1], "--of=", 5) == 0 &&
      !keep_tests_of(arguments[1] + 5)) {
    std::fprintf(stderr, "no test is of %s\n", arguments[1] + 5);
    status = 2;
  }
  if (status == 0) status = RUN_ALL_TESTS();
  std::filesystem::remove_all(folder, failed);
  return status;
}
