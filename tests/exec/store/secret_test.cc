// SPDX-License-Identifier: Apache-2.0
// Where the secret of a run comes from, and which files are not believed.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "exec/store/hmac.h"
#include "exec/store/secret.h"

namespace rehearse::exec {
namespace {

namespace fs = std::filesystem;

class Secret : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "rehearse-secret-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern;
  }
  void TearDown() override { fs::remove_all(folder); }
  std::string file(const std::string& text, mode_t mode) {
    const std::string path = folder + "/file";
    fs::remove(path);
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }
  static Result<std::string> of(const std::map<std::string, std::string>& variables,
                                bool one_host = false) {
    return secret_of_run(
        [&](const char* name) -> const char* {
          const auto found = variables.find(name);
          return found == variables.end() ? nullptr : found->second.c_str();
        },
        one_host);
  }
  std::string folder;
};

TEST_F(Secret, IsAVariableOrAPrivateFile) {
  EXPECT_EQ(of({{"REHEARSE_SECRET", "0123456789abcdef\n"}}).value(), "0123456789abcdef");
  EXPECT_EQ(of({{"REHEARSE_SECRET_FILE", file("0123456789abcdef\n", 0600)}}).value(),
            "0123456789abcdef");
  EXPECT_EQ(of({{"REHEARSE_SECRET_FILE", file("0123456789abcdef", 0400)}}).value(),
            "0123456789abcdef");
}

TEST_F(Secret, AFileThatOthersCanReadIsRefused) {
  for (const mode_t mode : {0644u, 0640u, 0604u, 0660u}) {
    const std::string path = file("0123456789abcdef", mode);
    EXPECT_EQ(of({{"REHEARSE_SECRET_FILE", path}}).error().message,
              "REHEARSE_SECRET_FILE: " + path + ": others may read it; chmod 600 makes it private");
  }
}

TEST_F(Secret, WhatIsNoRegularFileIsRefusedAndNotWaitedFor) {
  const std::string fifo = folder + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(of({{"REHEARSE_SECRET_FILE", fifo}}).error().message,
            "REHEARSE_SECRET_FILE: " + fifo + ": is no regular file");
  EXPECT_EQ(of({{"REHEARSE_SECRET_FILE", folder}}).error().message,
            "REHEARSE_SECRET_FILE: " + folder + ": is no regular file");
  EXPECT_EQ(of({{"REHEARSE_SECRET_FILE", folder + "/none"}}).error().message,
            "REHEARSE_SECRET_FILE: " + folder + "/none: No such file or directory");
  EXPECT_NE(of({{"REHEARSE_SECRET_FILE", file("\n", 0600)}}).error().message.find("is empty"),
            std::string::npos);
  EXPECT_NE(of({{"REHEARSE_SECRET_FILE", file(std::string(5000, 'x'), 0600)}})
                .error()
                .message.find("4096 bytes"),
            std::string::npos);
}

TEST_F(Secret, AnEmptyOneAndTwoAtOnceAreRefused) {
  EXPECT_EQ(of({{"REHEARSE_SECRET", ""}}, true).error().message,
            "REHEARSE_SECRET: has 0 characters; 16 to 4096 are right");
  EXPECT_EQ(of({{"REHEARSE_SECRET", "x"}, {"REHEARSE_SECRET_FILE", "y"}}).error().message,
            "REHEARSE_SECRET: is set, and so is REHEARSE_SECRET_FILE; one of them is right");
}

TEST_F(Secret, SeveralHostsWithoutOneAreRefusedByALineThatSaysHowToMakeOne) {
  const std::string message = of({}).error().message;
  EXPECT_TRUE(message.starts_with("REHEARSE_SECRET_FILE: is not set")) << message;
  EXPECT_NE(message.find("openssl rand -hex 32"), std::string::npos);
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

TEST_F(Secret, TheUsersOwnIsMadeOnceByWhoeverIsFirst) {
  std::vector<std::string> found(8);
  std::vector<std::thread> threads;
  for (std::string& one : found) {
    threads.emplace_back([&one, this] {
      const Result<std::string> secret = secret_of_user(folder);
      one = secret ? secret.value() : "error: " + secret.error().message;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& one : found) {
    EXPECT_EQ(one.size(), 64u) << one;
    EXPECT_EQ(one, found[0]);
  }
  const std::string path = folder + "/rehearse-" + std::to_string(geteuid());
  EXPECT_EQ(std::distance(fs::directory_iterator(path), fs::directory_iterator()), 1);
  struct stat info {};
  ASSERT_EQ(stat((path + "/secret").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  // What somebody else could have read, or put there, is not taken.
  chmod(path.c_str(), 0755);
  EXPECT_EQ(secret_of_user(folder).error().message, path + ": others may read it");
  fs::rename(path, folder + "/elsewhere");
  fs::create_symlink(folder + "/elsewhere", path);
  EXPECT_FALSE(secret_of_user(folder));
}

TEST(Hmac, IsThatOfRfc4231) {  // test cases 1, 2 and 6
  const auto hex = [](const std::string& bytes) {
    std::string out;
    for (const char c : bytes) {
      char two[3];
      std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(c));
      out += two;
    }
    return out;
  };
  EXPECT_EQ(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256(std::string(131, '\xaa'),
                            "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_NE(random_bytes(32), random_bytes(32));
}

}  // namespace
}  // namespace rehearse::exec
