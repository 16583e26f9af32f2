// SPDX-License-Identifier: Apache-2.0
// Files that appear whole or not at all, and what nothing may take the place of.
#include "schedules/base/bytes/whole_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>

namespace rehearse {
namespace {
namespace fs = std::filesystem;

class WholeFileTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  static std::string content(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::ptrdiff_t files() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }
  const fs::path folder_ =
      fs::path(testing::TempDir()) / ("whole_file_test." + std::to_string(getpid()));
};

TEST_F(WholeFileTest, AppearsAtTheEnd) {
  ASSERT_TRUE(write_whole(at("a"), "old"));
  WholeFile file(at("a"));
  file.write("new, ");
  EXPECT_EQ(content(at("a")), "old");
  file.write("and more");
  ASSERT_TRUE(file.finish());
  EXPECT_EQ(content(at("a")), "new, and more");
  EXPECT_EQ(files(), 1);
}

TEST_F(WholeFileTest, LeavesNothingUnlessItIsFinished) {
  ASSERT_TRUE(write_whole(at("a"), "old"));
  { WholeFile(at("a")).write("new"); }
  EXPECT_EQ(content(at("a")), "old");
  EXPECT_EQ(files(), 1);
}

TEST_F(WholeFileTest, SaysWhyItCannotBeWritten) {
  EXPECT_EQ(write_whole(at("none/a"), "x").error().message,
            at("none/a") + ": cannot write: No such file or directory");
  EXPECT_EQ(write_whole(folder_.string(), "x").error().message,
            folder_.string() + ": cannot write: Is a directory");
  EXPECT_FALSE(fs::exists(folder_.string() + ".tmp" + std::to_string(getpid())));
}

// As `--trace /dev/null` is: root's rename would put a file in the device's place.
TEST_F(WholeFileTest, WritesIntoAPipe) {
  ASSERT_EQ(mkfifo(at("pipe").c_str(), 0600), 0);
  const int reader = open(at("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_TRUE(write_whole(at("pipe"), "through"));
  std::array<char, 16> got{};
  EXPECT_EQ(read(reader, got.data(), got.size()), 7);
  EXPECT_STREQ(got.data(), "through");
  close(reader);
  EXPECT_TRUE(fs::is_fifo(at("pipe")));
  EXPECT_EQ(files(), 1);
}

TEST_F(WholeFileTest, FollowsALink) {
  ASSERT_TRUE(write_whole(at("a"), "old"));
  fs::create_symlink("a", at("link"));
  ASSERT_TRUE(write_whole(at("link"), "new"));
  EXPECT_TRUE(fs::is_symlink(at("link")));
  EXPECT_EQ(content(at("a")), "new");
  EXPECT_EQ(files(), 2);
}

}  // namespace
}  // namespace rehearse
