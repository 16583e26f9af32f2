// SPDX-License-Identifier: Apache-2.0
// The main of every test program: tests read their data by paths from the project's root, so a
// program goes there first, wherever it was started. What Google Test is told of files
// (--gtest_output) still counts from where the program was started.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <system_error>

int main(int count, char** arguments) {
  std::error_code failed;
  std::filesystem::current_path(REHEARSE_ROOT, failed);
  if (failed) {
    std::fprintf(stderr, "%s: the tests' data: %s\n", REHEARSE_ROOT, failed.message().c_str());
    return 2;
  }
  testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
