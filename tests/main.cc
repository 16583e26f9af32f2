// SPDX-License-Identifier: Apache-2.0
// The main of every test program: tests read their data by paths from the project's root, so a
// program goes there first, wherever it was started. REHEARSE_ROOT names that root to a program
// that was built elsewhere. What Google Test is told of files (--gtest_output) still counts from
// where the program was started. Exit 2: the tests cannot run.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
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
  testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
