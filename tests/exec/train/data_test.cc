// SPDX-License-Identifier: Apache-2.0
// Samples: from bytes, from llm.c's token files, from a seed; and what is wrong with a file.
#include "exec/train/data.h"
#include "schedules/base/random.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

namespace rehearse::exec {
namespace {

std::string write(const std::string& name, const std::string& bytes) {
  const std::string path = testing::TempDir() + "rehearse_data_" + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

// llm.c's layout: 256 int32 of header (magic, version, count), then tokens of one width.
template <class Token = std::uint16_t>
std::string token_file(std::int32_t magic, std::int32_t version, std::int32_t count,
                       const std::vector<Token>& tokens) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  std::string bytes(reinterpret_cast<const char*>(header.data()), 1024);
  bytes.append(reinterpret_cast<const char*>(tokens.data()), sizeof(Token) * tokens.size());
  return bytes;
}

struct Sample {
  std::vector<std::int32_t> inputs, targets;
};
Sample sample(const Data& data, std::int64_t number, std::int64_t sequence) {
  Sample out{std::vector<std::int32_t>(static_cast<std::size_t>(sequence)),
             std::vector<std::int32_t>(static_cast<std::size_t>(sequence))};
  data.sample(number, sequence, out.inputs.data(), out.targets.data());
  return out;
}

std::string error_of(const std::string& path, std::int64_t vocabulary = 256) {
  const Result<Data> data = Data::open(path, vocabulary, 1);
  return data ? "none" : data.error().message;
}

using Tokens = std::vector<std::int32_t>;

TEST(Data, AByteIsATokenAndTargetsAreTheNextOnes) {
  const Result<Data> data = Data::open(write("text", "abcdefg"), 256, 1);
  ASSERT_TRUE(data);
  EXPECT_EQ(sample(data.value(), 0, 3).inputs, (Tokens{'a', 'b', 'c'}));
  EXPECT_EQ(sample(data.value(), 0, 3).targets, (Tokens{'b', 'c', 'd'}));
  EXPECT_EQ(sample(data.value(), 1, 3).inputs, (Tokens{'d', 'e', 'f'}));
  EXPECT_EQ(sample(data.value(), 2, 3).inputs, (Tokens{'g', 'a', 'b'}));  // from the start again
  EXPECT_EQ(sample(data.value(), 2, 3).targets, (Tokens{'a', 'b', 'c'}));
}

TEST(Data, BytesAbove127AreTokensToo) {
  const Result<Data> data = Data::open(write("high", "\xff\x80\x01"), 256, 1);
  ASSERT_TRUE(data);
  EXPECT_EQ(sample(data.value(), 0, 2).inputs, (Tokens{255, 128}));
}

TEST(Data, ReadsTokenFilesOfLlmC) {
  const Result<Data> data =
      Data::open(write("tokens.bin", token_file<>(20240520, 1, 4, {5, 50256, 7, 9})), 50257, 1);
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(sample(data.value(), 0, 3).inputs, (Tokens{5, 50256, 7}));
  EXPECT_EQ(sample(data.value(), 0, 3).targets, (Tokens{50256, 7, 9}));
}

// The second format has tokens beyond 16 bits; they are what they say, not their lower halves.
TEST(Data, ReadsTokenFilesOf32Bits) {
  const std::vector<std::uint32_t> tokens{5, 128255, 65536, 9, 131071};
  const std::string path = write("wide.bin", token_file(20240801, 7, 5, tokens));
  const Result<Data> data = Data::open(path, 131072, 1);
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(sample(data.value(), 0, 3).inputs, (Tokens{5, 128255, 65536}));
  EXPECT_EQ(sample(data.value(), 1, 3).inputs, (Tokens{9, 131071, 5}));  // from the start again
  EXPECT_NE(error_of(path, 131071).find("token 131071 is not in the vocabulary of 131071"),
            std::string::npos);
  // 2^32 - 1 is no negative number.
  const std::vector<std::uint32_t> most{1, 4294967295};
  EXPECT_NE(error_of(write("most.bin", token_file(20240801, 7, 2, most)), 2000000000)
                .find("token 4294967295 is not in"),
            std::string::npos);
}

// Magic and version belong together, and each says its width.
TEST(Data, AWidthIsWhatTheHeaderSays) {
  const std::vector<std::uint32_t> wide{1, 2};
  EXPECT_NE(error_of(write("a.bin", token_file(20240801, 1, 2, wide))).find("not a token file"),
            std::string::npos);
  EXPECT_NE(error_of(write("b.bin", token_file(20240520, 7, 2, wide))).find("not a token file"),
            std::string::npos);
  EXPECT_NE(error_of(write("c.bin", token_file(20240801, 7, 4, wide)))
                .find("holds 2 tokens, its header says 4"),
            std::string::npos);
  EXPECT_NE(error_of(write("d.bin", token_file(20240520, 1, 2, wide)))
                .find("holds 4 tokens, its header says 2"),
            std::string::npos);
}

// 64 GiB without a block on the disk: mapped, not read, so it opens at once and takes no memory.
TEST(Data, AFileMayBeLargerThanTheMemory) {
  const std::string path = write("sparse", "");
  if (truncate(path.c_str(), off_t{1} << 36) != 0) GTEST_SKIP() << "no such long files here";
  const Result<Data> data = Data::open(path, 256, 1);
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(sample(data.value(), (std::int64_t{1} << 36) / 3, 3).inputs, (Tokens{0, 0, 0}));
  std::remove(path.c_str());
}

TEST(Data, SaysWhatIsWrongWithAFile) {
  EXPECT_NE(error_of("/no/such/file").find("no such file"), std::string::npos);
  EXPECT_NE(error_of("/dev/zero").find("not a regular file"), std::string::npos);  // endless
  EXPECT_NE(error_of(testing::TempDir()).find("is a directory"), std::string::npos);
  EXPECT_NE(error_of(write("short.bin", "abc")).find("too short"), std::string::npos);
  EXPECT_NE(error_of(write("magic.bin", token_file<>(1, 1, 2, {1, 2}))).find("not a token file"),
            std::string::npos);
  EXPECT_NE(
      error_of(write("version.bin", token_file<>(20240520, 2, 2, {1, 2}))).find("not a token file"),
      std::string::npos);
  EXPECT_NE(
      error_of(write("cut.bin", token_file<>(20240520, 1, 3, {1, 2}))).find("its header says 3"),
      std::string::npos);
  EXPECT_NE(
      error_of(write("negative.bin", token_file<>(20240520, 1, -1, {1, 2}))).find("header says 0"),
      std::string::npos);
  EXPECT_NE(error_of(write("empty", "")).find("no two tokens"), std::string::npos);
  EXPECT_NE(error_of(write("beyond", "az"), 100).find("token 122 is not in the vocabulary of 100"),
            std::string::npos);
}

TEST(Data, SyntheticTokensComeFromTheSeedAlone) {
  const Result<Data> a = Data::open("synthetic", 61, 7), b = Data::open("synthetic", 61, 7),
                     c = Data::open("synthetic", 61, 8);
  ASSERT_TRUE(a && b && c);
  const Sample one = sample(a.value(), 3, 500);
  EXPECT_EQ(one.inputs, sample(b.value(), 3, 500).inputs);
  EXPECT_NE(one.inputs, sample(c.value(), 3, 500).inputs);
  EXPECT_GE(*std::ranges::min_element(one.inputs), 0);
  EXPECT_LT(*std::ranges::max_element(one.inputs), 61);
  // Samples follow one another: the last target is the next sample's first input.
  EXPECT_EQ(one.targets.back(), sample(a.value(), 4, 500).inputs.front());
}

// The reference values of SplitMix64 with seed 1234567 (Vigna's splitmix64.c, as Rosetta Code
// lists).
TEST(SplitMix, GivesItsPublishedNumbers) {
  EXPECT_EQ(split_mix(1234567, 0), 6457827717110365317ULL);
  EXPECT_EQ(split_mix(1234567, 1), 3203168211198807973ULL);
  EXPECT_EQ(split_mix(1234567, 2), 9817491932198370423ULL);
}

}  // namespace
}  // namespace rehearse::exec
