// SPDX-License-Identifier: Apache-2.0
// The main of every test program: tests read their data by paths from the project's root, so a
// program goes there first, wherever it was started. REHEARSE_ROOT names that root to a program
// that was built elsewhere. What Google Test is told of files (--gtest_output) still counts from
// where the program was started. What tests write (testing::TempDir()) lies in a folder of this
// process, so that programs that run side by side share no file; it goes when the tests end.
// Exit 2: the tests cannot run.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

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
  const int status = RUN_ALL_TESTS();
  std::filesystem::remove_all(folder, failed);
  return status;
}
